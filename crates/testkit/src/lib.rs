//! Development only: raw frames, a scripted peer, faulty disk and link, temporary directories.
