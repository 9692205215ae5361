//! The settings that may change while the store is open: one atomic for each, so that puts and reads need no lock.

use crate::options::{FlushDiskType, Options};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

macro_rules! live {
    ($($(#[$meta:meta])* $field:ident: $atomic:ident => $type:ty;)*) => {
        /// The current values of the settings that may change.
        #[derive(Debug)]
        pub struct Live {
            /// Changed only by the flush leader and under the append lock: units in memory must keep their order.
            is_sync: AtomicBool,
            /// One bit for each hour of the day.
            delete_when: AtomicU32,
            $($field: $atomic,)*
        }

        impl Live {
            pub(crate) fn new(options: &Options) -> Self {
                Self {
                    is_sync: AtomicBool::new(options.flush == FlushDiskType::Sync),
                    delete_when: AtomicU32::new(bits(&options.delete_when)),
                    $($field: $atomic::new(options.$field),)*
                }
            }

            /// Replaces the values, except that of `flush`.
            pub(crate) fn set(&self, options: &Options) {
                self.delete_when.store(bits(&options.delete_when), Ordering::Relaxed);
                $(self.$field.store(options.$field, Ordering::Relaxed);)*
            }

            $(
                #[doc = concat!("[`Options::", stringify!($field), "`], its current value.")]
                pub fn $field(&self) -> $type {
                    self.$field.load(Ordering::Relaxed)
                }
            )*
        }
    };
}

live! {
    flush_interval_ms: AtomicU64 => u64;
    flush_queue_interval_ms: AtomicU64 => u64;
    sync_flush_timeout_ms: AtomicU64 => u64;
    busy_ms: AtomicU64 => u64;
    send_wait_ms: AtomicU64 => u64;
    send_capacity: AtomicUsize => usize;
    max_message_bytes: AtomicUsize => usize;
    file_reserved_hours: AtomicU32 => u32;
    disk_max_used_percent: AtomicU8 => u8;
    disk_clean_forcibly_percent: AtomicU8 => u8;
    disk_warning_percent: AtomicU8 => u8;
    disk_enough_bytes: AtomicU64 => u64;
    disk_min_free_bytes: AtomicU64 => u64;
    hot_log_bytes: AtomicU64 => u64;
    store_max_bytes: AtomicU64 => u64;
    clean_interval_ms: AtomicU64 => u64;
    max_query_count: AtomicUsize => usize;
    max_transfer_count: AtomicUsize => usize;
    max_transfer_bytes: AtomicUsize => usize;
    usual_transfer_bytes: AtomicUsize => usize;
}

impl Live {
    /// [`Options::flush`], its current value.
    pub fn flush(&self) -> FlushDiskType {
        if self.is_sync.load(Ordering::Relaxed) {
            FlushDiskType::Sync
        } else {
            FlushDiskType::Async
        }
    }

    /// Only under the append lock and with the flush leadership.
    pub(crate) fn set_flush(&self, flush: FlushDiskType) {
        self.is_sync
            .store(flush == FlushDiskType::Sync, Ordering::Relaxed);
    }

    /// Whether [`Options::delete_when`] currently contains an hour.
    pub fn deletes_at(&self, hour: u8) -> bool {
        self.delete_when.load(Ordering::Relaxed) & bits(&[hour]) != 0
    }
}

fn bits(hours: &[u8]) -> u32 {
    hours.iter().fold(0, |bits, hour| bits | 1 << (hour % 24))
}
