//! The options that change while the broker runs (request 25): one atomic for each, so that requests read them without
//! a lock.

use crate::options::Options;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};

macro_rules! live {
    ($($field:ident: $atomic:ident => $type:ty;)*) => {
        /// The current values of the options that may change while the broker runs.
        #[derive(Debug)]
        pub struct LiveOptions {
            $($field: $atomic,)*
        }

        impl LiveOptions {
            /// The values at the start.
            pub fn new(options: &Options) -> Self {
                Self { $($field: $atomic::new(options.$field),)* }
            }

            /// Replaces the values by the new ones.
            pub fn set(&self, options: &Options) {
                $(self.$field.store(options.$field, Ordering::Relaxed);)*
            }

            $(
                #[doc = concat!("The option `", stringify!($field), "`, its current value.")]
                pub fn $field(&self) -> $type {
                    self.$field.load(Ordering::Relaxed)
                }
            )*
        }
    };
}

impl LiveOptions {
    /// Changes the permission before the other options, and returns the previous one.
    pub(crate) fn swap_broker_permission(&self, permission: i32) -> i32 {
        self.broker_permission.swap(permission, Ordering::AcqRel)
    }
}

live! {
    broker_permission: AtomicI32 => i32;
    auto_create_topic_enable: AtomicBool => bool;
    auto_create_topic_limit: AtomicI32 => i32;
    max_topics_per_user: AtomicI32 => i32;
    auto_create_subscription_group: AtomicBool => bool;
    auto_create_group_limit: AtomicI32 => i32;
    reject_transaction_message: AtomicBool => bool;
    transaction_time_out: AtomicI64 => i64;
    transaction_check_max: AtomicI32 => i32;
    transaction_check_interval: AtomicI64 => i64;
    reject_pull_consumer_enable: AtomicBool => bool;
    lite_pull_message_enable: AtomicBool => bool;
    enable_property_filter: AtomicBool => bool;
    long_polling_enable: AtomicBool => bool;
    short_polling_time_mills: AtomicI64 => i64;
    notify_consumer_ids_changed_enable: AtomicBool => bool;
    recall_message_enable: AtomicBool => bool;
    trace_on: AtomicBool => bool;
    default_query_max_num: AtomicI32 => i32;
    flush_consumer_offset_interval: AtomicI64 => i64;
    flush_delay_offset_interval: AtomicI64 => i64;
    allow_recall_when_broker_not_writeable: AtomicBool => bool;
    append_topic_for_timer_delete_key: AtomicBool => bool;
}
