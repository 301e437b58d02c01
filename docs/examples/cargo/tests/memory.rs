//! The load whose memory is limited. PAGES is for trying what happens above the limit.

#[test]
fn a_usual_load() {
    let pages = std::env::var("PAGES").map_or(16, |pages| pages.parse().unwrap());
    assert_eq!(gated::Cache::of(pages).len(), pages << 16);
}
