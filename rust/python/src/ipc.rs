//! `write_ipc_file`: an Arrow IPC file that is whole and on disk under its name, or not there at all.
//!
//! The order that makes it so: write to a new file beside it, fsync the file, link(2) it to its name (which fails
//! when the name is taken, unlike rename(2)), unlink the first name, fsync the folder that holds the names.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fastkcl_codec as codec;
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::batch::RecordBatch;
use crate::errors::os_error;

/// The file under its temporary name; gone when this is dropped.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    /// A new file in `folder`, named after `name`.
    fn beside(folder: &Path, name: &std::ffi::OsStr) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut temporary = OsString::from(".");
        temporary.push(name);
        // Process and number tell writers of one host apart; O_EXCL stops two that still meet.
        temporary.push(format!(".{}-{}.tmp", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        let path = folder.join(temporary);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A file that can't be unlinked stays under a name that says what it is; nothing else can be done here.
        let _ = fs::remove_file(&self.path);
    }
}

/// An IPC error as the I/O error that it comes from, with its errno, where there is one.
fn io_error(error: codec::ipc::IpcError) -> io::Error {
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        if let Some(errno) = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(errno);
        }
        source = cause.source();
    }
    io::Error::other(error.to_string())
}

fn write_file(path: &Path, batches: &[codec::RecordBatch], metadata: &[(String, String)]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(is_a_folder)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = Temporary::beside(folder, name)?;
    let mut out = BufWriter::new(&temporary.file);
    codec::ipc::write(&mut out, batches, metadata).map_err(io_error)?;
    out.flush()?;
    drop(out);
    temporary.file.sync_all()?;
    fs::hard_link(&temporary.path, path)?;
    drop(temporary);
    sync_folder(folder)
}

#[cfg(unix)]
fn is_a_folder() -> io::Error {
    rustix::io::Errno::ISDIR.into()
}

#[cfg(not(unix))]
fn is_a_folder() -> io::Error {
    io::ErrorKind::IsADirectory.into()
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A folder can't be opened as a file here; NTFS writes its names to a journal by itself.
#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Write an Arrow IPC file with schema metadata, synced to disk with its folder, under path exclusively.
///
/// It is written to a temporary name beside it first, so path is whole or absent.
///
/// Raises:
///     FileExistsError, OSError: it could not be written.
#[pyfunction]
pub(crate) fn write_ipc_file(
    py: Python<'_>,
    path: PathBuf,
    batches: Vec<Py<RecordBatch>>,
    metadata: &Bound<'_, PyMapping>,
) -> PyResult<()> {
    let batches: Vec<codec::RecordBatch> = batches.iter().map(|batch| batch.get().0.clone()).collect();
    let metadata: Vec<(String, String)> =
        metadata.items()?.iter().map(|item| item.extract()).collect::<PyResult<_>>()?;
    py.detach(|| write_file(&path, &batches, &metadata)).map_err(|error| os_error(py, &error, Some(path.as_os_str())))
}
