#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code)] // each binary runs one of them
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::http3_stream(data));
