//! The calls of NVML: names, types and numbers of `nvml.h`. The versioned names of its calls are stable.
//! A call that the library lacks counts as one that the GPU does not support.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};

/// `nvmlDevice_t`
#[derive(Debug, Clone, Copy)]
pub(super) struct Device(*mut c_void);

/// `NVML_SUCCESS`
const SUCCESS: c_int = 0;
/// `NVML_ERROR_GPU_IS_LOST`, `NVML_ERROR_RESET_REQUIRED`
const LOST: [c_int; 2] = [15, 16];
/// `NVML_MEMORY_ERROR_TYPE_CORRECTED`, `..._UNCORRECTED`
pub(super) const CORRECTED: c_uint = 0;
pub(super) const UNCORRECTED: c_uint = 1;
/// `NVML_VOLATILE_ECC`: since the driver's start.
const VOLATILE: c_uint = 0;
/// `NVML_TEMPERATURE_GPU`
const OF_GPU: c_uint = 0;
/// `NVML_NVLINK_ERROR_DL_REPLAY`, `..._RECOVERY`, `..._CRC_FLIT`, `..._CRC_DATA`
const LINK_ERRORS: [c_uint; 4] = [0, 1, 2, 3];
/// Bytes for a text; the longest of `nvml.h` has 96.
const TEXT_BYTES: usize = 128;

/// `nvmlPciInfo_t`
#[repr(C)]
struct PciInfo {
    legacy_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    id: [c_char; 32],
}

const _: () = assert!(size_of::<PciInfo>() == 68);

type OfDevice<T> = unsafe extern "C" fn(*mut c_void, *mut T) -> c_int;
type Text = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int;

/// The open library. It is closed by the end of the process.
pub(super) struct Library {
    handle: *mut c_void,
}

impl Library {
    /// Loads and starts the library.
    pub(super) fn open(file: &str) -> Result<Self, String> {
        if cfg!(target_feature = "crt-static") {
            return Err(format!(
                "{file} cannot be loaded: the dynamic part of the probe does not run on this system"
            ));
        }
        let name = CString::new(file).map_err(|_| "the name of the library contains a zero".to_owned())?;
        // SAFETY: the name ends with a zero. What the library does as it is loaded is safe in any process.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure it gives null or a text that lives until this thread's next call.
            let text = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
            let text = text.map_or_else(Default::default, CStr::to_string_lossy);
            return Err(format!("{file} cannot be loaded: {text}"));
        }
        let library = Self { handle };
        // SAFETY: `nvml.h` declares the symbol with this type.
        let init: Option<unsafe extern "C" fn() -> c_int> = unsafe { library.symbol("nvmlInit_v2") };
        let init = init.ok_or_else(|| format!("{file} has no nvmlInit_v2"))?;
        // SAFETY: it takes no argument.
        match unsafe { init() } {
            SUCCESS => Ok(library),
            code => Err(format!("{file} does not start: {}", library.words(code))),
        }
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the type of the function pointer that `nvml.h` declares for the name.
    unsafe fn symbol<F: Copy>(&self, name: &str) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is an open library's, the name ends with a zero.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        // SAFETY: a pointer to a function of this type, as the caller states; the sizes are equal.
        (!symbol.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&symbol) })
    }

    fn words(&self, code: c_int) -> String {
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: Option<unsafe extern "C" fn(c_int) -> *const c_char> = unsafe { self.symbol("nvmlErrorString") };
        // SAFETY: it returns null or a text that lives as long as the library.
        let text = call.and_then(|call| unsafe { call(code).as_ref().map(|text| CStr::from_ptr(text)) });
        let text = text.map_or_else(Default::default, CStr::to_string_lossy);
        format!("{text} (NVML error {code})")
    }

    pub(super) fn driver(&self) -> Option<String> {
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: Option<unsafe extern "C" fn(*mut c_char, c_uint) -> c_int> =
            unsafe { self.symbol("nvmlSystemGetDriverVersion") };
        let (call, mut bytes) = (call?, [0; TEXT_BYTES]);
        // SAFETY: pointer and length describe `bytes`.
        let code = unsafe { call(bytes.as_mut_ptr(), TEXT_BYTES as c_uint) };
        (code == SUCCESS).then(|| text_of(&bytes))
    }

    pub(super) fn count(&self) -> Result<u32, String> {
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: Option<unsafe extern "C" fn(*mut c_uint) -> c_int> = unsafe { self.symbol("nvmlDeviceGetCount_v2") };
        let (call, mut count) = (call.ok_or("the library has no nvmlDeviceGetCount_v2")?, 0);
        // SAFETY: it writes one number.
        match unsafe { call(&raw mut count) } {
            SUCCESS => Ok(count),
            code => Err(self.words(code)),
        }
    }

    pub(super) fn device(&self, index: u32) -> Result<Device, String> {
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: Option<unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int> =
            unsafe { self.symbol("nvmlDeviceGetHandleByIndex_v2") };
        let call = call.ok_or("the library has no nvmlDeviceGetHandleByIndex_v2")?;
        let mut device = std::ptr::null_mut();
        // SAFETY: it writes one pointer.
        match unsafe { call(index, &raw mut device) } {
            SUCCESS => Ok(Device(device)),
            code => Err(self.words(code)),
        }
    }

    /// One value of a device, by a call that writes it.
    ///
    /// # Safety
    /// `nvml.h` must declare the name as a function of a device and a pointer to a `T`.
    unsafe fn value<T: Default>(&self, name: &str, device: Device) -> Result<T, Option<c_int>> {
        // SAFETY: as the caller states.
        let call: OfDevice<T> = unsafe { self.symbol(name) }.ok_or(None)?;
        let mut value = T::default();
        // SAFETY: the device is the library's own; it writes one value.
        match unsafe { call(device.0, &raw mut value) } {
            SUCCESS => Ok(value),
            code => Err(Some(code)),
        }
    }

    /// A number of a device, by one of the calls with an `unsigned int` or an enumeration.
    pub(super) fn number(&self, name: &str, device: Device) -> Option<u32> {
        // SAFETY: the callers name functions that write an `unsigned int` or an enumeration of its size.
        unsafe { self.value::<c_uint>(name, device) }.ok()
    }

    /// Why the device is lost. `None`: it answers.
    pub(super) fn lost(&self, device: Device) -> Option<String> {
        // SAFETY: `nvml.h` declares it with an enumeration.
        let state = unsafe { self.value::<c_uint>("nvmlDeviceGetPerformanceState", device) };
        let code = state.err().flatten().filter(|code| LOST.contains(code))?;
        Some(self.words(code))
    }

    pub(super) fn text(&self, name: &str, device: Device) -> Option<String> {
        // SAFETY: the callers name functions that fill a text of a given length.
        let call: Text = unsafe { self.symbol(name) }?;
        let mut bytes = [0; TEXT_BYTES];
        // SAFETY: pointer and length describe `bytes`.
        let code = unsafe { call(device.0, bytes.as_mut_ptr(), TEXT_BYTES as c_uint) };
        (code == SUCCESS).then(|| text_of(&bytes))
    }

    /// The PCI address in the kernel's form, such as `0000:1b:00.0`.
    pub(super) fn address(&self, device: Device) -> Option<String> {
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: OfDevice<PciInfo> = unsafe { self.symbol("nvmlDeviceGetPciInfo_v3") }?;
        let mut info = PciInfo {
            legacy_id: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            device_id: 0,
            subsystem_id: 0,
            id: [0; 32],
        };
        // SAFETY: it writes one structure of this layout (68 bytes, checked above).
        let code = unsafe { call(device.0, &raw mut info) };
        (code == SUCCESS).then(|| format!("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device))
    }

    pub(super) fn temperature(&self, device: Device) -> Option<u32> {
        type Call = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: Call = unsafe { self.symbol("nvmlDeviceGetTemperature") }?;
        let mut degrees = 0;
        // SAFETY: it writes one number.
        let code = unsafe { call(device.0, OF_GPU, &raw mut degrees) };
        (code == SUCCESS).then_some(degrees)
    }

    /// Memory errors since the driver's start.
    pub(super) fn memory_errors(&self, device: Device, kind: c_uint) -> Option<u64> {
        type Call = unsafe extern "C" fn(*mut c_void, c_uint, c_uint, *mut c_ulonglong) -> c_int;
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: Call = unsafe { self.symbol("nvmlDeviceGetTotalEccErrors") }?;
        let mut count = 0;
        // SAFETY: it writes one number.
        let code = unsafe { call(device.0, kind, VOLATILE, &raw mut count) };
        (code == SUCCESS).then_some(count)
    }

    /// Rows remapped for corrected and uncorrected errors, and whether one waits or failed.
    pub(super) fn remapped_rows(&self, device: Device) -> Option<[u32; 4]> {
        type Call = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint) -> c_int;
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: Call = unsafe { self.symbol("nvmlDeviceGetRemappedRows") }?;
        let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
        // SAFETY: it writes four numbers.
        let code = unsafe {
            call(
                device.0,
                &raw mut corrected,
                &raw mut uncorrected,
                &raw mut pending,
                &raw mut failed,
            )
        };
        (code == SUCCESS).then_some([corrected, uncorrected, pending, failed])
    }

    /// Bits of the reasons for lower clocks. Older drivers have the same call under its former name.
    pub(super) fn clock_reasons(&self, device: Device) -> Option<u64> {
        let names = [
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ];
        // SAFETY: `nvml.h` declares both with an `unsigned long long`.
        names
            .iter()
            .find_map(|name| unsafe { self.value::<c_ulonglong>(name, device) }.ok())
    }

    /// `None`: the GPU has no such link.
    pub(super) fn link_is_up(&self, device: Device, link: u32) -> Option<bool> {
        type Call = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: Call = unsafe { self.symbol("nvmlDeviceGetNvLinkState") }?;
        let mut state = 0;
        // SAFETY: it writes one number.
        let code = unsafe { call(device.0, link, &raw mut state) };
        (code == SUCCESS).then_some(state == 1)
    }

    /// The sum of the link's error counters.
    pub(super) fn link_errors(&self, device: Device, link: u32) -> Option<u64> {
        type Call = unsafe extern "C" fn(*mut c_void, c_uint, c_uint, *mut c_ulonglong) -> c_int;
        // SAFETY: `nvml.h` declares the symbol with this type.
        let call: Call = unsafe { self.symbol("nvmlDeviceGetNvLinkErrorCounter") }?;
        let mut sum = None;
        for counter in LINK_ERRORS {
            let mut count = 0;
            // SAFETY: it writes one number.
            if unsafe { call(device.0, link, counter, &raw mut count) } == SUCCESS {
                sum = Some(sum.unwrap_or(0_u64).saturating_add(count));
            }
        }
        sum
    }
}

/// The text up to its zero.
fn text_of(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes
        .iter()
        .map(|byte| byte.cast_unsigned())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
