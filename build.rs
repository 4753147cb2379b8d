//! Links the programs of `make test` for fixed addresses. All others run at any address (PIE), which hampers attacks.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TOLLGATE_FIXED_ADDRESS");
    if std::env::var_os("TOLLGATE_FIXED_ADDRESS").is_some() {
        println!("cargo:rustc-link-arg=-no-pie");
    }
}
