//! Sessions and passwords.

use crate::random;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use ring::rand::SecureRandom;
use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) user: String,
    token: String,
    last_used: Instant,
}

/// The sessions of one BMC.
#[derive(Debug)]
pub(super) struct Sessions {
    open: Vec<Session>,
    limit: usize,
    pub(super) timeout: Duration,
    next_id: u64,
}

/// Why no session was opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// All sessions of the BMC are in use.
    Full,
    NoRandomness,
}

impl Sessions {
    pub(super) fn new(limit: usize, timeout: Duration) -> Self {
        Self {
            open: Vec::new(),
            limit,
            timeout,
            next_id: 1,
        }
    }

    /// Opens a session; returns its id and token.
    pub(super) fn open(&mut self, user: &str, now: Instant) -> Result<(String, String), Refused> {
        self.expire(now);
        if self.open.len() >= self.limit {
            return Err(Refused::Full);
        }
        let mut bytes = [0_u8; 24];
        random::source().fill(&mut bytes).map_err(|_| Refused::NoRandomness)?;
        let (id, token) = (self.next_id.to_string(), hex::encode(bytes));
        self.next_id += 1;
        self.open.push(Session {
            id: id.clone(),
            user: user.to_owned(),
            token: token.clone(),
            last_used: now,
        });
        Ok((id, token))
    }

    /// The user of the open session with this token; use keeps a session open.
    pub(super) fn admit(&mut self, token: &str, now: Instant) -> Option<String> {
        self.expire(now);
        match self.open.iter_mut().find(|session| same(&session.token, token)) {
            Some(session) => {
                session.last_used = now;
                Some(session.user.clone())
            }
            None => None,
        }
    }

    /// Closes a session; `false` if there is none of that id.
    pub(super) fn close(&mut self, id: &str) -> bool {
        let before = self.open.len();
        self.open.retain(|session| session.id != id);
        self.open.len() < before
    }

    /// The user of this session.
    pub(super) fn user(&self, id: &str) -> Option<String> {
        let found = self.open.iter().find(|session| session.id == id);
        found.map(|session| session.user.clone())
    }

    /// Closes all sessions when the BMC restarts.
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }

    /// Ids of the open sessions.
    pub(super) fn ids(&mut self, now: Instant) -> Vec<String> {
        self.expire(now);
        self.open.iter().map(|session| session.id.clone()).collect()
    }

    fn expire(&mut self, now: Instant) {
        let timeout = self.timeout;
        self.open
            .retain(|session| now.duration_since(session.last_used) < timeout);
    }
}

/// Compares two secrets by their digests, so that the time of the comparison reveals nothing about them.
pub fn same(a: &str, b: &str) -> bool {
    digest(&SHA256, a.as_bytes()).as_ref() == digest(&SHA256, b.as_bytes()).as_ref()
}

/// User and password of an `Authorization: Basic` header.
pub(super) fn basic(header: &str) -> Option<(String, String)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[test]
    fn a_session_lives_as_long_as_it_is_used() {
        let mut sessions = Sessions::new(2, TIMEOUT);
        let start = Instant::now();
        let (_, token) = sessions.open("admin", start).unwrap();
        assert!(sessions.admit(&token, start + Duration::from_secs(29)).is_some());
        assert!(sessions.admit(&token, start + Duration::from_secs(58)).is_some());
        assert!(sessions.admit(&token, start + Duration::from_secs(88)).is_none());
    }

    #[test]
    fn the_pool_is_bounded_and_expired_sessions_make_room() {
        let mut sessions = Sessions::new(1, TIMEOUT);
        let start = Instant::now();
        sessions.open("admin", start).unwrap();
        assert_eq!(sessions.open("admin", start), Err(Refused::Full));
        assert!(sessions.open("admin", start + TIMEOUT).is_ok());
    }

    #[test]
    fn closed_sessions_are_refused() {
        let mut sessions = Sessions::new(1, TIMEOUT);
        let start = Instant::now();
        let (id, token) = sessions.open("admin", start).unwrap();
        assert!(sessions.close(&id) && !sessions.close(&id));
        assert!(sessions.admit(&token, start).is_none());
    }

    #[test]
    fn basic_headers_are_parsed() {
        assert_eq!(basic("Basic YWRtaW46YTpi"), Some(("admin".into(), "a:b".into())));
        assert_eq!(basic("Bearer YWRtaW46YTpi"), None);
        assert_eq!(basic("Basic !"), None);
    }
}
