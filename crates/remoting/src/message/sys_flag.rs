//! The bits of a message's `sysFlag` (Apache `MessageSysFlag`).

/// The body is compressed; the algorithm is in [`COMPRESSION_TYPE`].
pub const COMPRESSED: i32 = 0x1;
/// The message carries several tags (historic, nobody writes it).
pub const MULTI_TAGS: i32 = 0x2;
/// First phase of a transaction.
pub const TRANSACTION_PREPARED: i32 = 0x4;
/// A committed transaction.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// A rolled back transaction; also the mask of the transaction bits.
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
/// The born host is 16 address bytes and a port.
pub const BORN_HOST_V6: i32 = 0x10;
/// The store host is 16 address bytes and a port.
pub const STORE_HOST_V6: i32 = 0x20;
/// An inner batch that its reader takes apart.
pub const NEED_UNWRAP: i32 = 0x40;
/// The record's body is a batch of messages.
pub const INNER_BATCH: i32 = 0x80;
/// Mask of the compression type.
pub const COMPRESSION_TYPE: i32 = 0x700;
/// Compression type LZ4 (frame format).
pub const COMPRESSION_LZ4: i32 = 0x100;
/// Compression type ZSTD.
pub const COMPRESSION_ZSTD: i32 = 0x200;
/// Compression type ZLIB as 5.x writes it; 4.x leaves the bits zero.
pub const COMPRESSION_ZLIB: i32 = 0x300;

/// The transaction bits alone.
pub const fn transaction(sys_flag: i32) -> i32 {
    sys_flag & TRANSACTION_ROLLBACK
}

/// The flag with its transaction bits replaced.
pub const fn with_transaction(sys_flag: i32, transaction: i32) -> i32 {
    (sys_flag & !TRANSACTION_ROLLBACK) | transaction
}

/// True for the two kinds that no consume queue ever lists: prepared and rolled back.
pub const fn is_hidden(sys_flag: i32) -> bool {
    matches!(transaction(sys_flag), TRANSACTION_PREPARED | TRANSACTION_ROLLBACK)
}
