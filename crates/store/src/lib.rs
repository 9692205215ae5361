//! The message log on disk in the formats of Apache RocketMQ.
