//! The memory cgroup of a process: its folder in the file system, and the folders above it.
//!
//! `/proc/self/cgroup` names the cgroup by a path within its hierarchy. `/proc/self/mountinfo`
//! tells where a hierarchy is mounted, and from which cgroup on. In a container the path may lie
//! outside of what is mounted; the mount's own folder is then the nearest cgroup that can be read.

/// The version of a hierarchy, which decides its files' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A hierarchy of the memory controller alone.
    One,
    /// The hierarchy of all controllers.
    Two,
}

/// A cgroup's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// The version of its hierarchy.
    pub version: CgroupVersion,
    /// The folder where the hierarchy is mounted.
    mount: String,
    /// The path below the mount, without slashes around it.
    below: String,
}

impl Cgroup {
    /// Returns the cgroup that limits the process's memory, from the texts of `/proc/self/cgroup`
    /// and `/proc/self/mountinfo`. The memory controller belongs to one hierarchy: version 1 if
    /// that has it.
    #[must_use]
    pub fn find(cgroup: &str, mountinfo: &str) -> Option<Cgroup> {
        let memberships = || {
            cgroup.lines().filter_map(|line| {
                let (_, rest) = line.split_once(':')?;
                rest.split_once(':')
            })
        };
        let one = memberships().find(|(names, _)| names.split(',').any(|name| name == "memory"));
        let two = memberships().find(|(names, _)| names.is_empty());
        let of = |version, member: Option<(&str, &str)>| {
            let (_, path) = member?;
            let mounts = || {
                let found = mountinfo.lines().filter_map(|line| mount_of(line, version));
                found.map(|(root, mount)| (path.strip_prefix(root.trim_end_matches('/')), mount))
            };
            // Other containers' cgroups may be mounted, too. Without one that has the path, the
            // first is that of the process's own namespace.
            let above = || mounts().find(|(below, _)| below.is_some_and(is_below));
            let (below, mount) = above().or_else(|| mounts().next())?;
            let below = below.filter(|&below| is_below(below)).unwrap_or("");
            Some(Cgroup {
                version,
                mount: unescaped(mount),
                below: below.trim_matches('/').to_owned(),
            })
        };
        of(CgroupVersion::One, one).or_else(|| of(CgroupVersion::Two, two))
    }

    /// Returns the folders of the cgroup and of those above it, up to the mount. A limit of any of
    /// them is a limit of the process.
    pub fn folders(&self) -> impl Iterator<Item = String> + '_ {
        let mut next = Some(self.below.as_str());
        std::iter::from_fn(move || {
            let below = next?;
            next = match below.rsplit_once('/') {
                Some((above, _)) => Some(above),
                None => (!below.is_empty()).then_some(""),
            };
            Some(match below {
                "" => self.mount.clone(),
                below => format!("{}/{below}", self.mount),
            })
        })
    }
}

/// Returns true if the rest of a path behind a root is a path below it: `/../web` lies outside of
/// the process's namespace.
fn is_below(rest: &str) -> bool {
    (rest.is_empty() || rest.starts_with('/')) && !rest.contains("/..")
}

/// Returns the root and the mount point of a line of `mountinfo`, if a hierarchy of that version
/// with the memory controller is mounted there.
fn mount_of(line: &str, version: CgroupVersion) -> Option<(&str, &str)> {
    let (about, of_kind) = line.split_once(" - ")?;
    let mut of_kind = of_kind.split(' ');
    let is_it = match (version, of_kind.next()?) {
        (CgroupVersion::One, "cgroup") => of_kind.nth(1)?.split(',').any(|it| it == "memory"),
        (CgroupVersion::Two, "cgroup2") => true,
        _ => false,
    };
    let mut about = about.split(' ').skip(3);
    is_it.then_some((about.next()?, about.next()?))
}

/// Returns a path of `mountinfo`, where `\040` stands for a space.
fn unescaped(path: &str) -> String {
    let mut whole = String::new();
    let mut rest = path;
    while let Some(at) = rest.find('\\') {
        let digits = rest.get(at + 1..at + 4);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let Some(byte) = byte.filter(u8::is_ascii) else {
            break;
        };
        whole.push_str(&rest[..at]);
        whole.push(byte.into());
        rest = &rest[at + 4..];
    }
    whole + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str =
        "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";

    fn folders(cgroup: &str, mounts: &str) -> Vec<String> {
        let found = Cgroup::find(cgroup, mounts);
        found.map_or_else(Vec::new, |found| found.folders().collect())
    }

    #[test]
    fn a_limit_may_be_in_any_folder_up_to_the_mount() {
        assert_eq!(
            folders("0::/system.slice/web.service\n", TWO),
            [
                "/sys/fs/cgroup/system.slice/web.service",
                "/sys/fs/cgroup/system.slice",
                "/sys/fs/cgroup"
            ]
        );
        assert_eq!(folders("0::/\n", TWO), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn the_version_with_the_memory_controller_counts() {
        let mounts = format!(
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n{TWO}"
        );
        let found = Cgroup::find("4:memory:/a/b\n3:cpu:/\n0::/x\n", &mounts).unwrap();
        assert_eq!(found.version, CgroupVersion::One);
        assert_eq!(
            found.folders().next().as_deref(),
            Some("/sys/fs/cgroup/memory/a/b")
        );
        // The controller is in no hierarchy of version 1.
        let found = Cgroup::find("3:cpu:/\n0::/x\n", &mounts).unwrap();
        assert_eq!(found.version, CgroupVersion::Two);
    }

    #[test]
    fn in_a_container_the_path_begins_at_what_is_mounted() {
        let bound = TWO.replace(" / /sys", " /docker/1 /sys");
        assert_eq!(
            folders("0::/docker/1/sub\n", &bound),
            ["/sys/fs/cgroup/sub", "/sys/fs/cgroup"]
        );
        assert_eq!(folders("0::/elsewhere\n", &bound), ["/sys/fs/cgroup"]);
        assert_eq!(folders("0::/../../web\n", TWO), ["/sys/fs/cgroup"]);
        // A host that sees the mounts of its containers.
        let other = TWO.replace(" / /sys", " /docker/1 /var/lib/1/sys");
        let both = format!("{other}\n{TWO}\n{other}");
        assert_eq!(
            folders("0::/docker/12\n", &both)[0],
            "/sys/fs/cgroup/docker/12"
        );
    }

    #[test]
    fn texts_that_are_cut_name_no_cgroup() {
        for end in 0..TWO.len() {
            let _ = folders("0::/a\n", &TWO[..end]);
        }
        assert_eq!(Cgroup::find("", TWO), None);
        assert_eq!(Cgroup::find("0::/a", ""), None);
        assert_eq!(unescaped("/a\\040b\\"), "/a b\\");
    }
}
