//! Keys of providers: where they come from, which one is used next, and where they are kept.
//!
//! A key is a [`SecretString`] from the moment it is read; it leaves that type only in the header of a request.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncReadExt;

use crate::home_file::{HomeFile, HomeFileError};
use crate::provider::redact::Redactor;
use crate::tool::process::Errand;
use crate::vault;

/// How long a key command may take: it may ask a password manager, but not wait for ever.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// The most a key command may print.
const MAX_COMMAND_OUTPUT: u64 = 64 * 1024;
const FILE_NAME: &str = "credentials.toml";

/// Reads one variable of the environment this process was started with.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the reader of the environment for credentials")]
pub fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok().or_else(|| Some(vault::get(name)?.expose_secret().to_owned()))
}

/// Why a key could not be had, stored or removed.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The key command did not print a key.
    #[error("the key command of {provider} {problem}")]
    Command {
        /// The provider.
        provider: String,
        /// What went wrong, without the command's output.
        problem: String,
    },
    /// The key file could not be read or written.
    #[error("cannot use {path}: {problem}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        problem: String,
    },
}

/// The rings of this process, by home folder and provider.
static RINGS: Mutex<BTreeMap<(PathBuf, String), Arc<KeyRing>>> = Mutex::new(BTreeMap::new());

/// The keys of one provider, shared by all sessions.
#[derive(Debug)]
pub struct KeyRing {
    provider: String,
    command: Option<String>,
    redactor: Redactor,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: Vec<Key>,
    has_run_command: bool,
    /// The command's key was refused, so the command is asked again before the next request.
    is_refused: bool,
    marks: u64,
}

impl State {
    fn add(&mut self, at: usize, secret: SecretString) {
        self.marks += 1;
        self.keys.insert(at, Key { secret, mark: KeyMark(self.marks), rests_until_ms: 0 });
    }
}

#[derive(Debug)]
struct Key {
    secret: SecretString,
    mark: KeyMark,
    rests_until_ms: i64,
}

/// Tells one key of a ring from the others and says nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMark(u64);

/// A key in use by one request.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The key.
    pub secret: SecretString,
    /// Which key of the ring it is.
    pub mark: KeyMark,
}

impl KeyRing {
    /// A ring of these keys, used in this order: the first until it has to rest, then the next.
    #[must_use]
    pub fn new(provider: &str, keys: Vec<SecretString>, command: Option<String>, redactor: Redactor) -> Self {
        keys.iter().for_each(|key| redactor.learn(key));
        let mut state = State::default();
        keys.into_iter().enumerate().for_each(|(at, secret)| state.add(at, secret));
        Self { provider: provider.to_owned(), command, redactor, state: Mutex::new(state) }
    }

    /// The ring that all sessions and models share, so that what befalls a key is known to each. A new one when the
    /// configuration of this home folder gives the provider other keys than before.
    #[must_use]
    pub fn shared(home: &Path, provider: &str, keys: Vec<SecretString>, command: Option<String>) -> Arc<Self> {
        let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (home.to_owned(), provider.to_owned());
        if let Some(ring) = rings.get(&name).filter(|ring| ring.is_made_of(&keys, command.as_deref())) {
            return Arc::clone(ring);
        }
        let ring = Arc::new(Self::new(provider, keys, command, Redactor::process()));
        rings.insert(name, Arc::clone(&ring));
        ring
    }

    fn is_made_of(&self, keys: &[SecretString], command: Option<&str>) -> bool {
        let state = self.lock();
        let configured =
            state.keys.iter().skip(usize::from(state.has_run_command)).map(|key| key.secret.expose_secret());
        self.command.as_deref() == command && configured.eq(keys.iter().map(SecretString::expose_secret))
    }

    /// True when there is neither a key nor a command that could give one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.command.is_none() && self.lock().keys.is_empty()
    }

    /// The text cleaner that knows these keys.
    #[must_use]
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The key to use now: the first that does not rest, else the one that has rested longest. `None` for a
    /// provider without keys.
    ///
    /// # Errors
    /// [`CredentialError::Command`] when the first key has to come from a command that fails.
    pub async fn lease(&self, now_ms: i64) -> Result<Option<Lease>, CredentialError> {
        if self.needs_command() {
            self.refresh().await?;
        }
        let state = self.lock();
        let awake = state.keys.iter().find(|key| key.rests_until_ms <= now_ms);
        let key = awake.or_else(|| state.keys.iter().min_by_key(|key| key.rests_until_ms));
        Ok(key.map(|key| Lease { secret: key.secret.clone(), mark: key.mark }))
    }

    /// Puts a key to rest, because its owner was told to wait or it was refused.
    pub fn rest(&self, mark: KeyMark, until_ms: i64) {
        let mut state = self.lock();
        if let Some(key) = state.keys.iter_mut().find(|key| key.mark == mark) {
            key.rests_until_ms = key.rests_until_ms.max(until_ms);
        }
    }

    /// Tells that the key was refused: it rests, and a command is asked again before the next request.
    pub fn refuse(&self, mark: KeyMark, until_ms: i64) {
        self.rest(mark, until_ms);
        let mut state = self.lock();
        // One that was replaced in the meantime says nothing about its successor.
        state.is_refused |= self.command.is_some() && state.keys.iter().any(|key| key.mark == mark);
    }

    /// True when a command can give a key in the place of a refused one.
    #[must_use]
    pub fn has_command(&self) -> bool {
        self.command.is_some()
    }

    fn needs_command(&self) -> bool {
        let state = self.lock();
        self.command.is_some() && (state.is_refused || (!state.has_run_command && state.keys.is_empty()))
    }

    /// How long it takes until one of several keys has rested; `None` for a single one.
    #[must_use]
    pub fn shortest_rest(&self, now_ms: i64) -> Option<Duration> {
        let state = self.lock();
        let first = state.keys.iter().map(|key| key.rests_until_ms).min().filter(|_| state.keys.len() > 1)?;
        Some(Duration::from_millis(u64::try_from(first.saturating_sub(now_ms)).unwrap_or(0)))
    }

    /// How many keys can be used now.
    #[must_use]
    pub fn awake(&self, now_ms: i64) -> usize {
        self.lock().keys.iter().filter(|key| key.rests_until_ms <= now_ms).count()
    }

    /// Runs the key command again. Its key replaces the one it gave before.
    ///
    /// Cancel-safe: dropping the future kills the command and changes nothing.
    async fn refresh(&self) -> Result<(), CredentialError> {
        let Some(command) = &self.command else { return Ok(()) };
        let secret = run_key_command(command)
            .await
            .map_err(|problem| CredentialError::Command { provider: self.provider.clone(), problem })?;
        self.redactor.learn(&secret);
        let mut state = self.lock();
        state.is_refused = false;
        if std::mem::replace(&mut state.has_run_command, true) && !state.keys.is_empty() {
            state.keys.remove(0);
        }
        state.add(0, secret);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the command in a shell; the key is the first line it prints.
async fn run_key_command(command: &str) -> Result<SecretString, String> {
    #[expect(clippy::disallowed_methods, reason = "a key command is the user's own, not a tool's")]
    let mut process = tokio::process::Command::new("/bin/sh");
    process.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    process.envs(vault::all());
    let mut errand = Errand::start(&mut process).map_err(|error| format!("cannot be started: {error}"))?;
    let output = errand.child.stdout.take();
    let run = async {
        let mut text = String::new();
        if let Some(output) = output {
            output.take(MAX_COMMAND_OUTPUT).read_to_string(&mut text).await.map_err(|_| "printed no text")?;
        }
        let status = errand.child.wait().await.map_err(|error| format!("cannot be waited for: {error}"))?;
        if !status.success() {
            return Err(format!("failed with {status}"));
        }
        let key = text.lines().next().unwrap_or_default().trim();
        if key.is_empty() { Err("printed nothing".to_owned()) } else { Ok(SecretString::from(key)) }
    };
    match tokio::time::timeout(COMMAND_TIMEOUT, run).await {
        Ok(result) => result,
        Err(_) => Err(format!("took longer than {} s", COMMAND_TIMEOUT.as_secs())),
    }
}

/// The key of this provider in the key file of `home`.
///
/// # Errors
/// [`CredentialError::File`] when the file is there but cannot be read or parsed.
pub fn stored_key(home: &Path, provider: &str) -> Result<Option<SecretString>, CredentialError> {
    let table: toml::Table = key_file(home).read()?;
    let key = table.get(provider).and_then(|entry| entry.get("api_key")).and_then(toml::Value::as_str);
    Ok(key.filter(|key| !key.is_empty()).map(SecretString::from))
}

/// Keeps a key in the key file, readable by the owner only from its first byte.
///
/// # Errors
/// [`CredentialError::File`]; the file is as it was.
pub fn store_key(home: &Path, provider: &str, key: &SecretString) -> Result<(), CredentialError> {
    key_file(home).change(|table: &mut toml::Table| {
        let entry = toml::Table::from_iter([("api_key".to_owned(), key.expose_secret().into())]);
        table.insert(provider.into(), entry.into());
        Ok(())
    })
}

/// Removes a key from the key file; false when there was none.
///
/// # Errors
/// [`CredentialError::File`]; the file is as it was.
pub fn remove_key(home: &Path, provider: &str) -> Result<bool, CredentialError> {
    let file = key_file(home);
    if !file.read::<toml::Table>()?.contains_key(provider) {
        return Ok(false);
    }
    file.change(|table: &mut toml::Table| Ok(table.remove(provider).is_some()))
}

fn key_file(home: &Path) -> HomeFile {
    HomeFile::new(home.join(FILE_NAME))
}

impl From<HomeFileError> for CredentialError {
    fn from(error: HomeFileError) -> Self {
        match error {
            HomeFileError::Io { path, source } => Self::File { path, problem: source.to_string() },
            // What the parser says may quote the line, and the line may hold a key.
            HomeFileError::Content { path, .. } => Self::File { path, problem: "it is not valid TOML".into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(keys: &[&str], command: Option<&str>) -> KeyRing {
        let keys = keys.iter().map(|key| SecretString::from(*key)).collect();
        KeyRing::new("p", keys, command.map(str::to_owned), Redactor::default())
    }

    async fn used(ring: &KeyRing, now_ms: i64) -> String {
        let lease = ring.lease(now_ms).await.unwrap();
        lease.map_or_else(String::new, |lease| lease.secret.expose_secret().to_owned())
    }

    #[tokio::test]
    async fn the_first_key_is_used_until_it_rests() {
        let ring = ring(&["a", "b"], None);
        assert_eq!(used(&ring, 0).await, "a");
        let lease = ring.lease(0).await.unwrap().unwrap();
        ring.rest(lease.mark, 1_000);
        assert_eq!((used(&ring, 0).await.as_str(), ring.awake(0)), ("b", 1));
        let lease = ring.lease(0).await.unwrap().unwrap();
        ring.rest(lease.mark, 2_000);
        assert_eq!((used(&ring, 0).await.as_str(), ring.awake(0)), ("a", 0), "the one that may wake first");
        assert_eq!(ring.shortest_rest(400), Some(Duration::from_millis(600)));
        assert_eq!(used(&ring, 2_000).await, "a");
    }

    #[tokio::test]
    async fn a_key_that_rests_rests_for_everybody_until_the_configuration_gives_others() {
        let home = tempfile::tempdir().unwrap();
        let ring = |keys: &[&str], command: Option<&str>| {
            let keys = keys.iter().map(|key| SecretString::from(*key)).collect();
            KeyRing::shared(home.path(), "p", keys, command.map(str::to_owned))
        };
        let lease = ring(&["a", "b"], None).lease(0).await.unwrap().unwrap();
        ring(&["a", "b"], None).rest(lease.mark, 1_000);
        assert_eq!(used(&ring(&["a", "b"], None), 0).await, "b");
        assert_eq!(used(&ring(&["a"], None), 0).await, "a");
        let folder = tempfile::tempdir().unwrap();
        let command = format!("echo x >> {0}; echo key-$(wc -l < {0})", folder.path().join("n").display());
        for _ in 0..2 {
            assert_eq!(used(&ring(&[], Some(&command)), 0).await, "key-1");
        }
    }

    #[tokio::test]
    async fn a_refused_only_key_cannot_be_replaced() {
        let ring = ring(&["a"], None);
        let lease = ring.lease(0).await.unwrap().unwrap();
        ring.refuse(lease.mark, 1_000);
        assert!(!ring.has_command() && ring.awake(0) == 0);
    }

    #[tokio::test]
    async fn no_key_is_no_error() {
        assert!(ring(&[], None).is_empty());
        assert_eq!(used(&ring(&[], None), 0).await, "");
    }

    #[tokio::test]
    async fn a_command_gives_the_key_and_gives_it_anew() {
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("n");
        let command = format!("echo x >> {0}; echo key-$(wc -l < {0})", counter.display());
        let ring = ring(&[], Some(&command));
        assert!(!ring.is_empty());
        assert_eq!(used(&ring, 0).await, "key-1");
        assert_eq!(used(&ring, 0).await, "key-1");
        let lease = ring.lease(0).await.unwrap().unwrap();
        ring.refuse(lease.mark, 1_000);
        assert!(ring.has_command(), "the command may give another");
        assert_eq!(used(&ring, 0).await, "key-2");
        assert_eq!(ring.awake(0), 1);
    }

    #[tokio::test]
    async fn a_failing_command_is_named_without_its_output() {
        for (command, expect) in [("echo secret-text; exit 3", "failed with"), ("true", "printed nothing")] {
            let error = ring(&[], Some(command)).lease(0).await.unwrap_err().to_string();
            assert!(error.contains(expect) && !error.contains("secret-text"), "{error}");
        }
    }

    #[test]
    fn the_key_file_is_private_and_keeps_other_keys() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        assert!(stored_key(home, "a").unwrap().is_none());
        store_key(home, "a", &SecretString::from("k1")).unwrap();
        store_key(home, "b", &SecretString::from("k2")).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(home.join(FILE_NAME)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert!(remove_key(home, "a").unwrap());
        assert!(!remove_key(home, "a").unwrap());
        assert_eq!(stored_key(home, "b").unwrap().unwrap().expose_secret(), "k2");
    }

    #[test]
    fn a_broken_key_file_is_reported_without_its_text() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(FILE_NAME), "api_key = sk-secret").unwrap();
        let error = stored_key(home.path(), "a").unwrap_err().to_string();
        assert!(!error.contains("sk-secret"), "{error}");
    }
}
