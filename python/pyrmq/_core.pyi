# The native module. It makes no public promise: defaults, checks and documentation live in the
# Python modules over it. One block a file of crates/bindings/src.

__version__: str
BUILD_PROFILE: str
