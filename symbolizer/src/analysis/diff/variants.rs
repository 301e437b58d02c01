//! Variants: the names that one function has in two builds, one of which has lost a part of it.
//!
//! ```text
//!   before, inlined    register_user        one site: register_user(int)
//!   after              register_user(int)
//! ```
//!
//! Sites of equal names are the same. Other sites of one module and one file are the same if their
//! bare names are. Some names in the debug information have no scopes. For these the last part of
//! the other name counts.

use std::collections::{BTreeMap, HashMap};

use super::sites::DiffSite;
use crate::naming::bare_name::BareName;

/// The sites of two builds, by their own names.
#[derive(Debug, Default)]
pub(super) struct Variants {
    sites: BTreeMap<DiffSite, Variant>,
}

/// A site under its own name.
#[derive(Debug, Clone)]
struct Variant {
    site: DiffSite,
    bare: BareName,
    /// Whether it is there, on each side.
    is_on: [bool; 2],
    /// The name of its source file, without folders.
    file: Option<String>,
}

impl Variant {
    fn is_on_both(&self) -> bool {
        self.is_on == [true; 2]
    }

    fn has_scopes(&self) -> bool {
        self.bare.last_part() != self.bare.text
    }
}

impl Variants {
    /// Takes a site of a side into account.
    pub(super) fn add(&mut self, side: usize, site: &DiffSite, file: Option<&str>) {
        if !self.sites.contains_key(site) {
            let variant = Variant {
                site: site.clone(),
                bare: BareName::of(&site.function),
                is_on: [false; 2],
                file: None,
            };
            self.sites.insert(site.clone(), variant);
        }
        if let Some(variant) = self.sites.get_mut(site) {
            variant.is_on[side] = true;
            let name = file.map(|file| file.rsplit('/').next().unwrap_or(file).to_owned());
            variant.file = variant.file.take().or(name);
        }
    }

    /// Returns the common site of those that are one under several names.
    pub(super) fn common_sites(&self) -> HashMap<DiffSite, DiffSite> {
        let mut common_sites = HashMap::new();
        for group in grouped(self.sites.values(), |bare| &bare.text) {
            let detailed = group.iter().filter(|it| it.bare.is_detailed).count();
            let are_equal = group.iter().all(|it| it.is_on_both());
            // Overloads that are on both sides stay what they are.
            let is_one = |it: &&&Variant| detailed <= 1 || !it.is_on_both();
            let group: Vec<&Variant> = group.iter().filter(is_one).copied().collect();
            if !are_equal && is_on_both_sides(&group) {
                let is_whole = |it: &&Variant| it.bare.is_detailed && !has_unnamed(&it.bare);
                let of_group = common_site(&group, is_whole, |bare| &bare.text);
                common_sites.extend(group.iter().map(|it| (it.site.clone(), of_group.clone())));
            }
        }
        let is_left = |it: &&Variant| !it.is_on_both() && !common_sites.contains_key(&it.site);
        let left = self.sites.values().filter(is_left);
        let mut of_parts = Vec::new();
        for group in grouped(left, BareName::last_part) {
            let is_lost = |side: usize| {
                let is_whole = |it: &&Variant| it.has_scopes() && it.is_on[1 - side];
                let is_part = |it: &&Variant| !it.has_scopes() && it.is_on[side];
                group.iter().any(is_part) && group.iter().any(is_whole)
            };
            if is_lost(0) || is_lost(1) {
                let of_group = common_site(&group, |it| it.has_scopes(), BareName::last_part);
                of_parts.extend(group.iter().map(|it| (it.site.clone(), of_group.clone())));
            }
        }
        common_sites.extend(of_parts);
        common_sites
    }
}

/// Returns the sites of one module, one file and one name, where these are several.
fn grouped<'a>(
    variants: impl Iterator<Item = &'a Variant>,
    name: impl Fn(&BareName) -> &str,
) -> Vec<Vec<&'a Variant>> {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&Variant>> = BTreeMap::new();
    for variant in variants {
        if let Some(file) = &variant.file {
            let key = (&*variant.site.module, &**file, name(&variant.bare));
            groups.entry(key).or_default().push(variant);
        }
    }
    groups.into_values().filter(|it| it.len() > 1).collect()
}

fn is_on_both_sides(group: &[&Variant]) -> bool {
    [0, 1]
        .iter()
        .all(|&side| group.iter().any(|it| it.is_on[side]))
}

/// Returns true if several functions may have that bare name: lambdas, and closures.
fn has_unnamed(bare: &BareName) -> bool {
    ["{lambda}", "{closure}"]
        .iter()
        .any(|it| bare.text.contains(it))
}

/// Returns the site that a group is shown as: under the only name that has lost nothing, or under
/// the one that they have in common.
fn common_site(
    group: &[&Variant],
    is_whole: impl Fn(&&Variant) -> bool,
    name: impl Fn(&BareName) -> &str,
) -> DiffSite {
    let mut whole = group.iter().copied().filter(|it| is_whole(it));
    let function = match (whole.next(), whole.next()) {
        (Some(only), None) => only.site.function.clone(),
        _ => name(&group[0].bare).to_owned(),
    };
    DiffSite {
        function,
        module: group[0].site.module.clone(),
        file: group.iter().find_map(|it| it.site.file.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that are shown of the sites of two sides, in their order.
    fn shown(sides: [&[&str]; 2]) -> [Vec<String>; 2] {
        let site = |function: &str| DiffSite {
            function: function.into(),
            module: "app".into(),
            file: None,
        };
        let mut variants = Variants::default();
        for (side, names) in sides.iter().enumerate() {
            for name in *names {
                // Builds are often in folders of their own.
                let file = ["/one/a.cpp", "/two/a.cpp"][side];
                variants.add(side, &site(name), Some(file));
            }
        }
        let common_sites = variants.common_sites();
        sides.map(|names| {
            let names = names.iter().map(|name| site(name));
            let names = names.map(|site| common_sites.get(&site).cloned().unwrap_or(site));
            names.map(|site| site.function).collect()
        })
    }

    #[test]
    fn a_function_that_is_inlined_on_one_side_is_one_site() {
        let inlined = "main::(anonymous struct)::operator()";
        let lambdas = [
            "main::{lambda(int)#1}::operator()(int) const",
            "main::{lambda(int)#2}::operator()(int) const",
        ];
        let lambda = "main::{lambda}::operator()";
        for (before, after, of_before, of_after) in [
            (
                &["f"][..],
                &["f(int)"][..],
                &["f(int)"][..],
                &["f(int)"][..],
            ),
            (&["f(int)"], &["f"], &["f(int)"], &["f(int)"]),
            // Inlined at one call, and not at another.
            (
                &["f", "f(int)"],
                &["f(int)"],
                &["f(int)", "f(int)"],
                &["f(int)"],
            ),
            // Any of two overloads may be the inlined one.
            (&["f"], &["f(int)", "f(long)"], &["f"], &["f", "f"]),
            (
                &["f(int)", "f"],
                &["f(int)", "f(long)"],
                &["f(int)", "f(long)"],
                &["f(int)", "f(long)"],
            ),
            // Overloads that both sides have, and no more.
            (
                &["f(int)", "f(long)"],
                &["f(int)", "f(long)"],
                &["f(int)", "f(long)"],
                &["f(int)", "f(long)"],
            ),
            (
                &["f", "f(int)"],
                &["f", "f(int)"],
                &["f", "f(int)"],
                &["f", "f(int)"],
            ),
            (
                &["f(int)"],
                &["f(int)", "f(long)"],
                &["f(int)"],
                &["f(int)", "f(long)"],
            ),
            (&["f(int)"], &["g(int)"], &["f(int)"], &["g(int)"]),
            (&[inlined], &lambdas, &[lambda], &[lambda, lambda]),
            (&[inlined], &lambdas[..1], &[lambda], &[lambda]),
            (
                &["make<int>"],
                &["void make<int>(int)"],
                &["void make<int>(int)"],
                &["void make<int>(int)"],
            ),
            // Without scopes.
            (
                &["{closure#0}"],
                &["rapp::main::{{closure}}"],
                &["rapp::main::{{closure}}"],
                &["rapp::main::{{closure}}"],
            ),
            (
                &["new"],
                &["a::A::new", "b::B::new"],
                &["new"],
                &["new", "new"],
            ),
            (
                &["a::A::new"],
                &["b::B::new"],
                &["a::A::new"],
                &["b::B::new"],
            ),
        ] {
            assert_eq!(
                shown([before, after]),
                [of_before, of_after],
                "{before:?} {after:?}"
            );
        }
    }

    /// Functions of one bare name in two files are two, and those of an unknown file are not known
    /// to be one.
    #[test]
    fn the_file_counts() {
        let site = |function: &str| DiffSite {
            function: function.into(),
            module: "app".into(),
            file: None,
        };
        for files in [
            [Some("a.cpp"), Some("b.cpp")],
            [None, Some("a.cpp")],
            [None, None],
        ] {
            let mut variants = Variants::default();
            variants.add(0, &site("f"), files[0]);
            variants.add(1, &site("f(int)"), files[1]);
            assert!(variants.common_sites().is_empty(), "{files:?}");
        }
    }
}
