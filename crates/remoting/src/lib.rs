//! The RocketMQ wire: frames, headers, bodies, message records; the transport behind the feature net.
