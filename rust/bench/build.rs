//! Compiles the C++ peer against simdjson's header, for this CPU.

fn main() {
    println!("cargo:rerun-if-changed=cpp/simdjson.cpp");
    let simdjson = std::env::var("DEP_SIMDJSON_ROOT").expect("simdjson-sys says where it has installed simdjson");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .flag("-march=native")
        .include(format!("{simdjson}/include"))
        .file("cpp/simdjson.cpp")
        .compile("fastkcl_simdjson");
}
