//! Guests of a few hundred bytes, so that a test needs no operating system: each prints a line on the serial port and then
//! powers off, resets or halts.

/// A guest's action after its line.
#[derive(Debug, Clone, Copy)]
pub enum Then {
    PowerOff,
    Reset,
    Halt,
}

impl Then {
    /// The same machine code in 16-bit and 64-bit mode except for operand sizes, hence `wide`.
    fn code(self, wide: bool) -> Vec<u8> {
        let dx = |port: u16| -> Vec<u8> {
            let [low, high] = port.to_le_bytes();
            if wide {
                vec![0x66, 0xba, low, high]
            } else {
                vec![0xba, low, high]
            } // mov dx, port
        };
        let halt = vec![0xfa, 0xf4, 0xeb, 0xfd]; // cli; hlt; jmp to hlt
        match self {
            // SLP_TYP S5 and SLP_EN to PM1a_CNT of the ICH9, which both firmwares place at 0x604.
            Self::PowerOff => {
                let ax: &[u8] = if wide {
                    &[0x66, 0xb8, 0x00, 0x20, 0x66, 0xef]
                } else {
                    &[0xb8, 0x00, 0x20, 0xef]
                };
                [dx(0x604), ax.to_vec(), halt].concat() // mov ax, 0x2000; out dx, ax
            }
            Self::Reset => [dx(0xcf9), vec![0xb0, 0x06, 0xee], halt].concat(), // mov al, 6; out dx, al
            Self::Halt => halt,
        }
    }
}

/// A boot sector for BIOS.
pub fn boot_sector(line: &str, then: Then) -> Vec<u8> {
    let mut code = vec![
        0x31, 0xc0, 0x8e, 0xd8, 0xfc, // xor ax, ax; mov ds, ax; cld
        0xbe, 0x00, 0x00, // mov si, text
        0xac, 0x84, 0xc0, 0x74, 0x06, // next: lodsb; test al, al; jz done
        0xba, 0xf8, 0x03, 0xee, 0xeb, 0xf5, // mov dx, 0x3f8; out dx, al; jmp next
    ];
    code.extend(then.code(false));
    let text = 0x7c00 + code.len() as u16;
    code[6..8].copy_from_slice(&text.to_le_bytes());
    code.extend(format!("\r\n{line}\r\n\0").bytes());
    assert!(code.len() <= 510, "the line is too long for a boot sector");
    code.resize(510, 0);
    code.extend([0x55, 0xaa]);
    code
}

/// An EFI application for x86-64: the smallest PE32+ file that EDK II loads, with one section.
pub fn efi_application(line: &str, then: Then) -> Vec<u8> {
    let mut code = vec![0x48, 0x8d, 0x35, 0, 0, 0, 0, 0xfc]; // lea rsi, [rip + text]; cld
    // next: lodsb; test al, al; jz done; mov dx, 0x3f8; out dx, al; jmp next
    code.extend([0xac, 0x84, 0xc0, 0x74, 0x07, 0x66, 0xba, 0xf8, 0x03, 0xee, 0xeb, 0xf4]);
    code.extend(then.code(true));
    let distance = code.len() as u32 - 7;
    code[3..7].copy_from_slice(&distance.to_le_bytes());
    code.extend(format!("\r\n{line}\r\n\0").bytes());
    code.resize(0x200, 0);
    [pe_headers(), code].concat()
}

/// Microsoft PE format: DOS header, COFF header, PE32+ optional header, section table; 0x200 bytes.
fn pe_headers() -> Vec<u8> {
    let mut pe = vec![0_u8; 0x200];
    let mut put = |at: usize, bytes: &[u8]| pe[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3c, &0x40_u32.to_le_bytes());
    put(0x40, b"PE\0\0");
    put(0x44, &0x8664_u16.to_le_bytes()); // machine
    put(0x46, &1_u16.to_le_bytes()); // sections
    put(0x54, &0xf0_u16.to_le_bytes()); // size of the optional header
    put(0x56, &0x022e_u16.to_le_bytes()); // executable, large addresses, stripped
    let optional = 0x58;
    put(optional, &0x20b_u16.to_le_bytes());
    put(optional + 4, &0x200_u32.to_le_bytes()); // size of code
    put(optional + 16, &0x1000_u32.to_le_bytes()); // entry point
    put(optional + 20, &0x1000_u32.to_le_bytes()); // base of code
    put(optional + 32, &0x1000_u32.to_le_bytes()); // section alignment
    put(optional + 36, &0x200_u32.to_le_bytes()); // file alignment
    put(optional + 56, &0x2000_u32.to_le_bytes()); // size of image
    put(optional + 60, &0x200_u32.to_le_bytes()); // size of headers
    put(optional + 68, &10_u16.to_le_bytes()); // subsystem: EFI application
    put(optional + 108, &16_u32.to_le_bytes()); // data directories, all empty
    let section = optional + 0xf0;
    put(section, b".text\0\0\0");
    put(section + 8, &0x200_u32.to_le_bytes()); // virtual size
    put(section + 12, &0x1000_u32.to_le_bytes()); // virtual address
    put(section + 16, &0x200_u32.to_le_bytes()); // size of raw data
    put(section + 20, &0x200_u32.to_le_bytes()); // pointer to raw data
    put(section + 36, &0x6000_0020_u32.to_le_bytes()); // code, execute, read
    pe
}

/// A FAT file system with the given EFI application as its default boot file.
pub fn efi_volume(application: &[u8]) -> Vec<u8> {
    use std::io::{Cursor, Write};
    let mut volume = Cursor::new(vec![0_u8; 2 << 20]);
    fatfs::format_volume(&mut volume, fatfs::FormatVolumeOptions::new()).unwrap();
    {
        let fs = fatfs::FileSystem::new(&mut volume, fatfs::FsOptions::new()).unwrap();
        let boot = fs.root_dir().create_dir("EFI").unwrap().create_dir("BOOT").unwrap();
        boot.create_file("BOOTX64.EFI").unwrap().write_all(application).unwrap();
    }
    volume.into_inner()
}

/// The firmware that an El Torito image is for; the values are its platform ids.
#[derive(Debug, Clone, Copy)]
pub enum Platform {
    Bios = 0x00,
    Efi = 0xef,
}

/// A CD image that boots `image` without emulation (El Torito specification 1.0).
pub fn iso(platform: Platform, image: &[u8]) -> Vec<u8> {
    const SECTOR: usize = 2048;
    let mut iso = vec![0_u8; 20 * SECTOR];
    for (sector, kind) in [(16, 1_u8), (17, 0), (18, 255)] {
        let at = sector * SECTOR;
        iso[at] = kind;
        iso[at + 1..at + 7].copy_from_slice(b"CD001\x01");
    }
    let record = 17 * SECTOR;
    iso[record + 7..record + 30].copy_from_slice(b"EL TORITO SPECIFICATION");
    iso[record + 0x47..record + 0x4b].copy_from_slice(&19_u32.to_le_bytes());
    let catalog = 19 * SECTOR;
    let mut validation = [0_u8; 32];
    (validation[0], validation[1], validation[30], validation[31]) = (1, platform as u8, 0x55, 0xaa);
    let words = validation
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let sum = words.fold(0_u16, u16::wrapping_add);
    validation[28..30].copy_from_slice(&sum.wrapping_neg().to_le_bytes());
    iso[catalog..catalog + 32].copy_from_slice(&validation);
    iso[catalog + 32] = 0x88;
    let sectors = image.len().div_ceil(512) as u16;
    iso[catalog + 38..catalog + 40].copy_from_slice(&sectors.to_le_bytes());
    iso[catalog + 40..catalog + 44].copy_from_slice(&20_u32.to_le_bytes());
    iso.extend(image);
    iso.resize(iso.len().next_multiple_of(SECTOR), 0);
    iso
}
