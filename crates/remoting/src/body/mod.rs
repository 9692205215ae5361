//! Bodies: lenient JSON in, exact fastjson out, and the typed bodies over it.
