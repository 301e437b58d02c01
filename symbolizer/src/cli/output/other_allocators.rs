//! Other allocators: modules of the profile that bring one of their own, by their symbol tables.

use heapprof_symbolizer::{Profile, Symbols};

/// The modules, by path, each with a function of its allocator. Only those whose symbol tables were
/// read for names.
pub(crate) fn other_allocators<'a>(
    profile: &'a Profile,
    symbols: &'a Symbols,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    symbols.reports().iter().filter_map(|(&index, report)| {
        let module = profile.modules.get(index as usize)?;
        let function = report.allocator.as_deref()?;
        let mut tapped = profile.run.tapped_files();
        let is_tapped = tapped.any(|file| is_of(file, &module.path));
        let is_recorded = module.is_allocator() || is_tapped;
        (!is_recorded).then_some((&*module.path, function))
    })
}

/// Returns true if a module of that path was opened as `file`, which may be relative.
fn is_of(file: &str, path: &str) -> bool {
    let plain = |path: &str| {
        let parts = path.split('/').filter(|&part| part != ".");
        parts.collect::<Vec<_>>().join("/")
    };
    let (file, path) = (plain(file), plain(path));
    path == file || !file.starts_with('/') && path.ends_with(&format!("/{file}"))
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn a_module_may_be_opened_by_a_relative_path() {
        let path = "/srv/app/./plug.so";
        for file in [
            "/srv/app/./plug.so",
            "/srv/app/plug.so",
            "./plug.so",
            "app/plug.so",
        ] {
            assert!(is_of(file, path), "{file}");
        }
        for file in ["/srv/app/plug.so.1", "./lug.so", "/app/plug.so"] {
            assert!(!is_of(file, path), "{file}");
        }
    }
}
