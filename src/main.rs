//! The thin binary: everything is in the library.

/// Chosen by measurement: it frees the memory of a flood, and costs less than the system's. See ARCHITECTURE.md.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    tollgate::cli::main()
}
