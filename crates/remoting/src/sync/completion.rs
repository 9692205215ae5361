//! What is called at the end of an operation, such as a request, a put or an fsync.

/// Handles the outcome of an operation, once: a closure, or a type that holds all data of the operation in one
/// allocation.
pub trait Completion<T, R = ()>: Send {
    /// Receives the outcome.
    fn complete(self: Box<Self>, outcome: T) -> R;
}

impl<T, R, F: FnOnce(T) -> R + Send> Completion<T, R> for F {
    fn complete(self: Box<Self>, outcome: T) -> R {
        self(outcome)
    }
}
