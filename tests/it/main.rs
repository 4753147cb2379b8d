//! Black-box and seam tests: one binary, one module a subject.
