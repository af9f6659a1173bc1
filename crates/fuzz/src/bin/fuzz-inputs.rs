//! libFuzzer over [`rackwright_fuzz::check`].

#![no_main]
#![allow(unsafe_code)] // the macro exports the functions that libFuzzer calls

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    rackwright_fuzz::check(data);
});
