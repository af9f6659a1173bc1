//! Writes images on simulated machines: the index comes from the real store over HTTPS. The fleet's configuration decides
//! whether the writer also fetches and verifies the chunks.
//!
//! The drive's content is derived from the digests of the image or of its chunks. The system on the drive can boot after
//! the writing time of the profile.

use super::cable::Carries;
use super::life::Life;
use crate::fleet::config::ImageData;
use crate::fleet::drive::SimDrive;
use crate::fleet::faults::During;
use crate::fleet::installed::Installed;
use rackwright_agent::drives::DriveFacts;
use rackwright_agent::jobs::control::JobControl;
use rackwright_agent::jobs::job_error;
use rackwright_agent::jobs::write::FinishError;
use rackwright_agent::jobs::writer::{ImageWriter, StoreWriter, WriteRequest, WriteSummary};
use rackwright_api::v1::JobError;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The writer during one boot.
pub(super) struct SimWriter {
    life: Arc<Life>,
    /// The image of the last fetched index: its digest and its size in bytes.
    image: Mutex<Option<(String, u64)>>,
}

impl SimWriter {
    pub(super) fn new(life: Arc<Life>) -> Self {
        Self {
            life,
            image: Mutex::default(),
        }
    }

    /// The same request with URLs that lead through the machine's simulated cable, so that faults can cut it.
    fn over_cable(&self, request: &WriteRequest) -> WriteRequest {
        let through = |url: &String| self.life.through_cable(url, Carries::Images);
        WriteRequest {
            store_urls: request.store_urls.iter().map(through).collect(),
            ..request.clone()
        }
    }

    fn drive(&self, path: &Path) -> io::Result<Arc<SimDrive>> {
        if !self.life.lasts() {
            return Err(io::Error::other("this boot of the machine has ended"));
        }
        let drives = self.life.node.sim_drives();
        let found = drives.all().iter().find(|drive| drive.node() == path);
        found.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl ImageWriter for SimWriter {
    fn logical_bytes(&self, request: &WriteRequest, control: &JobControl) -> Result<u64, JobError> {
        let bytes = StoreWriter.logical_bytes(&self.over_cable(request), control)?;
        let mut image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        *image = Some((request.image_digest.clone(), bytes));
        Ok(bytes)
    }

    fn write(&self, request: &WriteRequest, drive: &Path, control: &JobControl) -> Result<WriteSummary, JobError> {
        let known = self.image.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bytes = match known {
            Some((digest, bytes)) if digest == request.image_digest => bytes,
            _ => self.logical_bytes(request, control)?,
        };
        let failed = |error: io::Error| job_error("write-failed", format!("{}: {error}", drive.display()), true);
        let target = self.drive(drive).map_err(failed)?;
        let shared = &self.life.node.shared;
        target.write_image(&request.image_digest, bytes).map_err(failed)?;
        // EIO, as the kernel reports a medium error.
        let fails = shared.config.faults.write_fails(self.life.node.moment());
        let medium_error = || io::Error::from_raw_os_error(5);
        let written = match shared.config.image_data {
            // Not retryable, like the real agent's error: the drive is broken.
            ImageData::Skip if fails => Err(JobError {
                retryable: false,
                ..failed(medium_error())
            }),
            ImageData::Skip => Ok(WriteSummary {
                logical_bytes: bytes,
                written_bytes: bytes,
                ..WriteSummary::default()
            }),
            ImageData::Fetch => StoreWriter::stream(&self.over_cable(request), drive, control, &mut |offset, chunk| {
                if fails || !self.life.lasts() {
                    return Err(medium_error());
                }
                let done = offset + chunk.len() as u64;
                control.report_measured("image: write".to_owned(), (done, bytes), done, 0);
                target.write_chunk(offset, chunk)
            }),
        };
        if written.is_err() {
            target.invalidate();
        }
        let written = written?;
        let survived = self.life.survive(During::Write, control);
        survived.map_err(|stop| stop.error("writing the image"))?;
        let time = shared.clock.lasts(shared.timing.writing(bytes));
        let life = Arc::clone(&self.life);
        control.complete_later(time, move || {
            if life.lasts() {
                target.settle();
            }
        });
        control.report_measured("image: write".to_owned(), (bytes, bytes), written.written_bytes, 0);
        Ok(WriteSummary {
            verified_whole_disk: request.verify_whole_disk,
            ..written
        })
    }

    fn finish(&self, facts: &DriveFacts, files: &BTreeMap<String, Vec<u8>>) -> Result<(), FinishError> {
        let failed = |source| FinishError::Io {
            drive: facts.drive.name.clone(),
            source,
        };
        let drive = self.drive(&facts.node).map_err(failed)?;
        drive.put_seed(|installed| read_seed(installed, files)).map_err(failed)
    }

    fn invalidate(&self, facts: &DriveFacts) -> io::Result<()> {
        self.drive(&facts.node)?.invalidate();
        Ok(())
    }
}

/// Reads the data of an installed system from a seed's files.
fn read_seed(installed: &mut Installed, files: &BTreeMap<String, Vec<u8>>) {
    let file = |path: &str| {
        let bytes = files.get(path).map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let line = |path: &str| file(path).trim().to_owned();
    let marker = file("rackwright/image");
    let generation = marker.lines().find_map(|line| line.strip_prefix("generation="));
    installed.generation = generation.and_then(|number| number.parse().ok()).unwrap_or_default();
    installed.marker = marker;
    installed.hostname = line("rackwright/hostname");
    installed.instance_id = line("rackwright/instance-id");
    installed.ssh_host_private_key = file("rackwright/ssh_host_ed25519_key").into();
    installed.ssh_host_public_key = line("rackwright/ssh_host_ed25519_key.pub");
    installed.authorized_keys = file("rackwright/authorized_keys").lines().map(str::to_owned).collect();
    installed.user_data = file("user-data");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_read_and_one_without_our_files_is_empty() {
        let files = [
            ("rackwright/image", "digest=b3-00\ngeneration=7\n"),
            ("rackwright/hostname", "web-1\n"),
            ("rackwright/authorized_keys", "ssh-ed25519 A\nssh-ed25519 B\n"),
            ("user-data", "#cloud-config\n"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
        let mut read = Installed::default();
        read_seed(&mut read, &files.into());
        assert_eq!((read.generation, read.hostname.as_str()), (7, "web-1"));
        assert_eq!(read.authorized_keys, ["ssh-ed25519 A", "ssh-ed25519 B"]);
        assert_eq!(read.user_data, "#cloud-config\n");
        read_seed(&mut read, &BTreeMap::new());
        assert_eq!((read.generation, read.hostname.as_str()), (0, ""));
        assert!(read.authorized_keys.is_empty());
    }
}
