//! A small shop, which `scripts/demo` profiles: it loads a database, answers questions about it,
//! and leaks.
//!
//! ```text
//!  generate_customers ─┐
//!  generate_orders    ─┼─> shop.db (temporary file)
//!  build_indexes      ─┘      │
//!                             ├─> serve_report_requests       (thread "reports")
//!                             │     └─> ReportCache::remember, which never forgets
//!                             └─> collect_purchase_histories  (thread "histories")
//!                                   └─> shipping_label, a short-lived string
//! ```
//!
//! Each pattern that people look for in a heap profile is here once: a load phase that allocates
//! much and keeps little, C frames below Rust frames, and short-lived strings. One large table has
//! a good reason (the histories), and one a bad one (the cache of reports). The allocator is the
//! system's, because a preloaded profiler sees no other. The output is the same in every run.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::{env, fs, process, thread};

use rusqlite::{Connection, OpenFlags, Result, params};

const CUSTOMERS: u64 = 20_000;
const ORDERS: u64 = 240_000;
const REPORT_REQUESTS: u64 = 800;
const LABEL_ROUNDS: usize = 4;

const THREADS: &str = "threads that start and end well";

const REGIONS: [&str; 6] = [
    "Auvergne",
    "Bavaria",
    "Catalonia",
    "Drenthe",
    "Emilia",
    "Flanders",
];
const PRODUCTS: [&str; 4] = ["kettle", "bicycle lamp", "rain coat", "chess board"];

fn main() -> Result<()> {
    let file = DatabaseFile::fresh();
    let mut shop = Connection::open(&file.path)?;
    shop.execute_batch(SCHEMA)?;
    generate_customers(&mut shop)?;
    generate_orders(&mut shop)?;
    build_indexes(&shop)?;
    print_totals(&shop)?;

    let (reports, histories) = thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let reports = named("reports").spawn_scoped(scope, || serve_report_requests(&file.path));
        let histories =
            named("histories").spawn_scoped(scope, || collect_purchase_histories(&file.path));
        let (reports, histories) = (reports.expect(THREADS), histories.expect(THREADS));
        (reports.join(), histories.join())
    });
    reports.expect(THREADS)?;
    print_cache(&REPORTS.lock().expect("an unpoisoned cache"));
    print_best_customer(&histories.expect(THREADS)?);
    Ok(())
}

const SCHEMA: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, street TEXT, region TEXT);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, product TEXT, day INTEGER, cents INTEGER, note TEXT);
";

/// The database's file, removed when the program is done with it.
struct DatabaseFile {
    path: PathBuf,
}

impl DatabaseFile {
    fn fresh() -> Self {
        let path = env::temp_dir().join(format!("heapprof-demo-{}.db", process::id()));
        // Left by an earlier process with the same number, if it was killed.
        let _ = fs::remove_file(&path);
        Self { path }
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn open_to_read(path: &Path) -> Result<Connection> {
    let shop = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    // Room for the whole file. The readers of a process compete for pages. With less room, the
    // number of allocated pages would depend on which reader runs first.
    shop.execute_batch("PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;")?;
    Ok(shop)
}

// ---- Loading ----------------------------------------------------------------------------------

fn generate_customers(shop: &mut Connection) -> Result<()> {
    let mut dice = Dice(1);
    let transaction = shop.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO customers VALUES (?1, ?2, ?3, ?4)")?;
        for id in 0..CUSTOMERS {
            let name = customer_name(&mut dice);
            let street = format!(
                "{} {} Street",
                1 + dice.below(200),
                customer_name(&mut dice)
            );
            insert.execute(params![id, name, street, dice.pick(&REGIONS)])?;
        }
    }
    transaction.commit()
}

fn generate_orders(shop: &mut Connection) -> Result<()> {
    let mut dice = Dice(2);
    let transaction = shop.transaction()?;
    {
        let mut insert =
            transaction.prepare("INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        for id in 0..ORDERS {
            let customer = dice.below(CUSTOMERS);
            let product = dice.pick(&PRODUCTS);
            let (day, cents) = (dice.below(365), 500 + dice.below(20_000));
            insert.execute(params![
                id,
                customer,
                product,
                day,
                cents,
                order_note(&mut dice)
            ])?;
        }
    }
    transaction.commit()
}

fn customer_name(dice: &mut Dice) -> String {
    const SYLLABLES: [&str; 10] = [
        "an", "bel", "cor", "dun", "el", "fin", "gar", "hol", "ist", "jun",
    ];
    let mut name = String::new();
    for _ in 0..3 + dice.below(3) {
        name.push_str(dice.pick(&SYLLABLES));
    }
    name
}

fn order_note(dice: &mut Dice) -> String {
    let words = [
        "gift", "leave", "at", "the", "door", "call", "before", "noon", "fragile", "second",
        "floor",
    ];
    let chosen: Vec<&str> = (0..3 + dice.below(6)).map(|_| dice.pick(&words)).collect();
    chosen.join(" ")
}

fn build_indexes(shop: &Connection) -> Result<()> {
    shop.execute_batch(
        "CREATE INDEX orders_by_day ON orders (day, customer);
         CREATE INDEX orders_by_customer ON orders (customer, day);
         CREATE INDEX customers_by_region ON customers (region, name);
         ANALYZE;",
    )
}

// ---- Thread "reports": the leak ---------------------------------------------------------------

/// The cache lives as long as the process, as many caches do.
static REPORTS: LazyLock<Mutex<ReportCache>> = LazyLock::new(Mutex::default);

/// Reports by request. Its purpose is to answer a repeated request from memory.
#[derive(Default)]
struct ReportCache {
    by_request: HashMap<String, Vec<String>>,
}

impl ReportCache {
    /// The leak: the key has the number of the request, so no key comes twice and no report is ever
    /// dropped.
    // Not inlined, so that the leak has one address, and one line in every profile.
    #[inline(never)]
    fn remember(&mut self, request: u64, region: &str, lines: &[String]) {
        let key = format!("request {request}: best sellers of {region}");
        self.by_request.insert(key, lines.to_vec());
    }

    fn bytes_of_text(&self) -> usize {
        self.by_request.values().flatten().map(String::len).sum()
    }
}

fn serve_report_requests(path: &Path) -> Result<()> {
    let shop = open_to_read(path)?;
    let mut dice = Dice(3);
    for request in 0..REPORT_REQUESTS {
        let region = dice.pick(&REGIONS);
        let lines = best_sellers(&shop, region, dice.below(365 - 7))?;
        let mut cache = REPORTS.lock().expect("an unpoisoned cache");
        cache.remember(request, region, &lines);
    }
    Ok(())
}

/// Returns one week of one region: joined, grouped, sorted, and written out as text.
fn best_sellers(shop: &Connection, region: &str, first_day: u64) -> Result<Vec<String>> {
    let mut query = shop.prepare_cached(
        "SELECT product, name, count(*), sum(cents), group_concat(note, '; ')
         FROM orders JOIN customers ON customers.id = orders.customer
         WHERE day BETWEEN ?2 AND ?2 + 6 AND region = ?1
         GROUP BY product, customers.id ORDER BY sum(cents) DESC, name LIMIT 200",
    )?;
    let rows = query.query_map(params![region, first_day], |row| {
        let (product, name): (String, String) = (row.get(0)?, row.get(1)?);
        let (count, cents, notes): (u64, u64, String) = (row.get(2)?, row.get(3)?, row.get(4)?);
        Ok(format!(
            "{count} x {product:<14} {name:<24} {} ({notes})",
            euros(cents)
        ))
    })?;
    rows.collect()
}

// ---- Thread "histories": large for a good reason ----------------------------------------------

struct Purchase {
    day: u64,
    cents: u64,
    product: String,
}

/// Collects each customer's purchases in order. They are kept, because the last line of the output
/// is computed from them.
fn collect_purchase_histories(path: &Path) -> Result<HashMap<String, Vec<Purchase>>> {
    let shop = open_to_read(path)?;
    for region in &REGIONS[..LABEL_ROUNDS] {
        print_labels_for_region(&shop, region)?;
    }
    let mut histories: HashMap<String, Vec<Purchase>> = HashMap::new();
    let mut query = shop.prepare(
        "SELECT name || ', ' || street, day, cents, product
         FROM customers JOIN orders ON orders.customer = customers.id ORDER BY day, orders.id",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let purchase = Purchase {
            day: row.get(1)?,
            cents: row.get(2)?,
            product: row.get(3)?,
        };
        histories.entry(row.get(0)?).or_default().push(purchase);
    }
    Ok(histories)
}

/// Makes the label of every order of a region, and throws it away as a printer would: pure churn.
fn print_labels_for_region(shop: &Connection, region: &str) -> Result<usize> {
    let mut query = shop.prepare(
        "SELECT name, street, product FROM customers JOIN orders ON orders.customer = customers.id WHERE region = ?1",
    )?;
    let mut rows = query.query([region])?;
    let mut printed = 0;
    while let Some(row) = rows.next()? {
        let (name, street, product): (String, String, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        printed += shipping_label(&name, &street, region, &product).len();
    }
    Ok(printed)
}

fn shipping_label(name: &str, street: &str, region: &str, product: &str) -> String {
    let mut label = String::new();
    for line in [name, street, region, product] {
        let shouted = line.to_uppercase();
        writeln!(label, "| {shouted:<40} |").expect("writing to a string");
    }
    label
}

// ---- Output -----------------------------------------------------------------------------------

fn print_totals(shop: &Connection) -> Result<()> {
    let (orders, cents): (u64, u64) =
        shop.query_row("SELECT count(*), sum(cents) FROM orders", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    println!(
        "{CUSTOMERS} customers, {orders} orders, {} in all",
        euros(cents)
    );
    Ok(())
}

fn print_cache(cache: &ReportCache) {
    println!(
        "{} reports in the cache, {} bytes of text",
        cache.by_request.len(),
        cache.bytes_of_text()
    );
}

fn print_best_customer(histories: &HashMap<String, Vec<Purchase>>) {
    let spent =
        |purchases: &[Purchase]| purchases.iter().map(|purchase| purchase.cents).sum::<u64>();
    let best = histories
        .iter()
        .max_by_key(|(who, purchases)| (spent(purchases), *who));
    let (who, purchases) = best.expect("a shop with customers");
    let last = purchases.last().expect("a customer with purchases");
    println!(
        "best customer: {who}: {} purchases, {}",
        purchases.len(),
        euros(spent(purchases))
    );
    println!("their last: a {} on day {}", last.product, last.day);
}

fn euros(cents: u64) -> String {
    format!("{}.{:02} EUR", cents / 100, cents % 100)
}

/// SplitMix64: the same numbers in every run, without a dependency.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }
}
