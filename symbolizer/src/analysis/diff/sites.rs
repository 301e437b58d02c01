//! Sites of a difference: what two builds of a program have in common of a site.
//!
//! Addresses and lines move with every change of a program. A compiler makes other copies of a
//! function (`f.part.0`). The function and its module stay. The file tells functions of one name
//! apart, if a side has several: `static` functions of C, and names without a path.

use std::collections::{BTreeSet, HashMap};

use crate::naming::site::SiteKey;

/// A site, by what two builds of a program have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiffSite {
    /// The function, without the suffixes of copies.
    pub function: String,
    /// Name of its module, without folders.
    pub module: String,
    /// The end of the source file's path, if functions of that name are in several files.
    pub file: Option<String>,
}

impl DiffSite {
    /// The function, with its file if that tells it from others.
    pub fn title(&self) -> String {
        match &self.file {
            Some(file) => format!("{} ({file})", self.function),
            None => self.function.clone(),
        }
    }
}

/// The functions whose names are in several files of a side.
#[derive(Debug, Default)]
pub(super) struct Homonyms {
    /// By module and function, the files on each side; an empty one stands for "not known".
    files: HashMap<(String, String), [BTreeSet<String>; 2]>,
}

impl Homonyms {
    /// Takes a site of a side into account, whose module has that name on both.
    pub(super) fn add(&mut self, side: usize, key: &SiteKey, module: &str) {
        let function = common_name(&key.function).to_owned();
        let files = self.files.entry((module.to_owned(), function)).or_default();
        files[side].insert(key.file.as_deref().map_or("", end_of).to_owned());
    }

    /// The site, as both sides have it.
    pub(super) fn site(&self, key: &SiteKey, module: &str) -> DiffSite {
        let mut site = DiffSite {
            function: common_name(&key.function).to_owned(),
            module: module.to_owned(),
            file: None,
        };
        let of_name = (site.module, site.function);
        let files = self.files.get(&of_name);
        (site.module, site.function) = of_name;
        let are_several = files.is_some_and(|sides| {
            let are_known = !sides.iter().any(|files| files.contains(""));
            are_known && sides.iter().any(|files| files.len() > 1)
        });
        if are_several {
            site.file = key.file.as_deref().map(|file| end_of(file).to_owned());
        }
        site
    }
}

/// The last folder of a path and the file in it: what is before is the place of a build.
fn end_of(path: &str) -> &str {
    let mut slashes = path.rmatch_indices('/').map(|(at, _)| at);
    let folder = slashes.nth(1);
    folder.map_or(path, |at| &path[at + 1..])
}

/// A function's name without what tells its copies apart.
fn common_name(function: &str) -> &str {
    const COPIES: [&str; 5] = [".constprop", ".isra", ".part", ".lto_priv", ".cold"];
    let mut name = function.split(" [clone .").next().unwrap_or(function);
    loop {
        let without_number = match name.rsplit_once('.') {
            Some((rest, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
            _ => name,
        };
        let rest = COPIES
            .iter()
            .find_map(|copy| without_number.strip_suffix(copy));
        match rest.filter(|rest| !rest.is_empty()) {
            Some(rest) => name = rest,
            None => return name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_function_have_its_name() {
        for (copy, name) in [
            ("parse.constprop.0", "parse"),
            ("parse.constprop.0.isra.0", "parse"),
            ("parse.part.12.cold", "parse"),
            ("ns::f(int) [clone .isra.0] [clone .cold]", "ns::f(int)"),
            ("parse.0", "parse.0"),
            ("parse", "parse"),
            (".cold", ".cold"),
            ("[app+0x1234]", "[app+0x1234]"),
        ] {
            assert_eq!(common_name(copy), name, "{copy}");
        }
    }

    fn key(function: &str, file: &str) -> SiteKey {
        SiteKey {
            function: function.into(),
            file: (!file.is_empty()).then(|| file.into()),
            line: Some(1),
            module: "/bin/app".into(),
        }
    }

    /// The files tell two functions of one name apart, wherever the program was built; a function
    /// that moved to another file is one.
    #[test]
    fn a_file_counts_where_a_name_is_in_several() {
        let mut homonyms = Homonyms::default();
        let sites = [
            (0, key("init", "/one/net/a.c")),
            (0, key("init", "/one/disk/b.c")),
            (1, key("init", "/two/net/a.c")),
            (0, key("moved", "/one/net/a.c")),
            (1, key("moved", "/two/disk/b.c")),
            (0, key("stripped", "")),
            (1, key("stripped", "/two/net/a.c")),
            (1, key("stripped", "/two/disk/b.c")),
        ];
        for (side, key) in &sites {
            homonyms.add(*side, key, "app");
        }
        let titles = sites.map(|(_, key)| homonyms.site(&key, "app").title());
        assert_eq!(
            titles,
            [
                "init (net/a.c)",
                "init (disk/b.c)",
                "init (net/a.c)",
                "moved",
                "moved",
                "stripped",
                "stripped",
                "stripped"
            ]
        );
    }
}
