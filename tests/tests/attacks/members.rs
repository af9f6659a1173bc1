//! Members and agents after their rights have ended.
