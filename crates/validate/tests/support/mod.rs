//! Real SSH servers on loopback: Debian's sshd and dropbear, each with its own keys and files.

#![allow(clippy::unwrap_used, dead_code)]

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rackwright_identity::{SshKeyPair, SystemRng};
use rackwright_validate::SshTarget;
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

/// Ample time for a loaded machine; no test waits for it to pass.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A server that ends with the test.
pub struct Server {
    child: Child,
    pub dir: TempDir,
    pub port: u16,
    pub host: SshKeyPair,
    pub login: SshKeyPair,
    pub user: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Under sudo the child is sudo, which cannot end its own child.
        if let Ok(pid) = fs::read_to_string(self.dir.path().join("root-pid")) {
            let _ = as_root("kill").arg(pid.trim()).status();
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Server {
    pub fn target(&self) -> SshTarget {
        SshTarget {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: self.port,
            user: self.user.clone(),
            host_key: self.host.public_line().into(),
            private_key: self.login.private_key().clone(),
        }
    }

    pub fn authorized_keys(&self) -> PathBuf {
        self.dir.path().join("authorized_keys")
    }

    /// The processes that serve logins.
    pub fn logins(&self) -> Vec<String> {
        let ours = self.child.id().to_string();
        let serves = |stat: &str| {
            let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
            fields.and_then(|fields| fields.split(' ').nth(1)) == Some(ours.as_str())
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let serving = processes.filter(|process| {
            let stat = fs::read_to_string(process.path().join("stat"));
            stat.is_ok_and(|stat| serves(&stat))
        });
        serving
            .map(|process| process.file_name().into_string().unwrap())
            .collect()
    }

    /// Kills these processes, as when a machine goes down; the server itself stays.
    pub fn end_logins(&self) {
        for process in self.logins() {
            let killed = Command::new("kill").args(["-9", &process]).status();
            assert!(killed.unwrap().success());
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

pub fn key(comment: &str) -> SshKeyPair {
    SshKeyPair::generate(&SystemRng, comment).unwrap()
}

/// sshd with `options` added to its configuration; the login key is authorized.
pub fn sshd(options: &str) -> Server {
    sshd_with_environment("", options)
}

/// The same, with further variables (`NAME=VALUE`) in the environment of its logins.
///
/// The home of its logins is the server's own folder. The shell thus reads no settings of this machine's user: some of those
/// take a lock, and a shell that a test kills leaves that lock to all logins after it.
pub fn sshd_with_environment(variables: &str, options: &str) -> Server {
    let (dir, host, login) = (tempfile::tempdir().unwrap(), key("host"), key("provisioning"));
    let path = dir.path().to_owned();
    write_private(&path.join("host_key"), host.private_key().expose_secret());
    write_private(&path.join("authorized_keys"), &format!("{}\n", login.public_line()));
    let user = whoami();
    if user == "root" {
        // sshd's directory for privilege separation, which its service unit makes otherwise.
        fs::create_dir_all("/run/sshd").unwrap();
    }
    let port = free_port();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {dir}/host_key\nAuthorizedKeysFile {dir}/authorized_keys\n\
         PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nMaxStartups 100\nUseDNS no\nSetEnv HOME={dir} {variables}\n{options}\n",
        dir = path.display()
    );
    fs::write(path.join("sshd_config"), config).unwrap();
    let program = ["/usr/sbin/sshd", "/usr/bin/sshd"]
        .into_iter()
        .find(|p| Path::new(p).exists());
    let program = program.expect("sshd is needed: install the package openssh-server");
    let mut command = Command::new(program);
    command.args(["-D", "-e", "-f"]).arg(path.join("sshd_config"));
    Server {
        child: spawn(command, &path),
        dir,
        port,
        host,
        login,
        user,
    }
}

/// A program that only root may run; uses sudo if the tests run as another user.
fn as_root(program: &str) -> Command {
    if whoami() == "root" {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["--non-interactive", "--", program]);
    command
}

/// dropbear reads only `~/.ssh/authorized_keys`, so it gets its own /root in a mount namespace.
pub fn dropbear() -> Server {
    let (dir, host, login) = (tempfile::tempdir().unwrap(), key("host"), key("provisioning"));
    let path = dir.path().to_owned();
    write_private(&path.join("openssh_key"), host.private_key().expose_secret());
    let converted = Command::new("/usr/lib/dropbear/dropbearconvert")
        .args(["openssh", "dropbear"])
        .args([path.join("openssh_key"), path.join("host_key")])
        .output()
        .expect("dropbear is needed: install the package dropbear-bin");
    assert!(
        converted.status.success(),
        "{}",
        String::from_utf8_lossy(&converted.stderr)
    );
    write_private(&path.join("authorized_keys"), &format!("{}\n", login.public_line()));
    let port = free_port();
    let script = format!(
        "mount -t tmpfs -o mode=700 tmpfs /root && mkdir -m 700 /root/.ssh && \
         install -m 600 {dir}/authorized_keys /root/.ssh/authorized_keys && echo $$ > {dir}/root-pid && \
         exec /usr/sbin/dropbear -F -E -s -p 127.0.0.1:{port} -r {dir}/host_key -P {dir}/pid",
        dir = path.display()
    );
    let mut command = as_root("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    Server {
        child: spawn(command, &path),
        dir,
        port,
        host,
        login,
        user: "root".into(),
    }
}

fn spawn(mut command: Command, dir: &Path) -> Child {
    let log = fs::File::create(dir.join("log")).unwrap();
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

pub fn free_port() -> u16 {
    rackwright_free_port::free_port().unwrap()
}

fn whoami() -> String {
    String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout)
        .unwrap()
        .trim()
        .into()
}

fn write_private(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
