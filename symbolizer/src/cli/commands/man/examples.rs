//! Examples: command lines of each manual page, and the other pages that it names.

/// A page: its command, its examples with their meanings, and related pages.
type Page = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

/// All pages. The first one is that of `heapprof` itself.
pub(crate) const EXAMPLES: &[Page] = &[
    (
        "",
        &[
            ("heapprof run -o server -- ./server", "Record a program."),
            (
                "heapprof explain server.heaplog",
                "Say what leaks, and what is a cache.",
            ),
            (
                "heapprof top --at peak server.heaplog",
                "Show the sites at the moment of most memory.",
            ),
            (
                "heapprof report server.heaplog",
                "Write server.html, a page for a browser.",
            ),
        ],
        &["run", "explain", "top", "report", "libheapprof"],
    ),
    (
        "run",
        &[
            (
                "heapprof run -- ./server --port 80",
                "Record a program; the log is heapprof.server.PID.heaplog.",
            ),
            (
                "heapprof run -o out -i 64KiB -- make test",
                "Sample more often, and begin all file names with out.",
            ),
            (
                "heapprof run --only node -- npm test",
                "Record one program of many that are started.",
            ),
            (
                "heapprof run -q --fail-above 200MiB -m peak -- ./tests",
                "Judge the peak of a test: status 3 if it is above.",
            ),
        ],
        &["top", "explain", "report", "attach", "check", "libheapprof"],
    ),
    (
        "top",
        &[
            (
                "heapprof top server.heaplog",
                "Show who holds what is in use at the end.",
            ),
            (
                "heapprof top --at peak -n 5 server.heaplog",
                "Show the five largest sites at the peak.",
            ),
            (
                "heapprof top --older-than 10m server.heaplog",
                "Show blocks that have been in use for ten minutes.",
            ),
            (
                "heapprof top -m temporary-objects server.heaplog",
                "Show who allocates blocks that hardly live.",
            ),
            (
                "heapprof top --by type --focus parse server.heaplog",
                "Show the types below functions with that name.",
            ),
        ],
        &["tree", "diff", "explain", "watch", "timeline"],
    ),
    (
        "tree",
        &[
            (
                "heapprof tree --min 5 server.heaplog",
                "Show the branches with five percent and more.",
            ),
            (
                "heapprof tree --callers Sessions::open server.heaplog",
                "Show who calls a function.",
            ),
            (
                "heapprof tree -m growth server.heaplog",
                "Show the calls that lead to what grows.",
            ),
        ],
        &["top", "export", "report"],
    ),
    (
        "explain",
        &[
            (
                "heapprof explain server.heaplog",
                "Give each site a verdict: leak, cache, burst, …",
            ),
            (
                "heapprof explain --at peak server.heaplog",
                "Judge the run up to its peak.",
            ),
            ("heapprof explain 4711", "Judge a process that runs."),
        ],
        &["top", "tree", "timeline", "rss"],
    ),
    (
        "diff",
        &[
            ("heapprof diff old.heaplog new.heaplog", "Compare two runs."),
            (
                "heapprof diff --at 2m --at end server.heaplog",
                "Show what grew since the second minute.",
            ),
            (
                "heapprof diff --fail-above 5% old.heaplog new.heaplog",
                "End with status 3 if more grew.",
            ),
            (
                "heapprof diff --format markdown old.heaplog new.heaplog",
                "Write a table for a pull request.",
            ),
        ],
        &["top", "check", "explain"],
    ),
    (
        "check",
        &[
            (
                "heapprof check new.heaplog",
                "Judge by the budget in heapprof.toml.",
            ),
            (
                "heapprof check --budget limits.toml --suppressions known.supp new.heaplog",
                "Leave out what is known.",
            ),
        ],
        &["diff", "run"],
    ),
    (
        "timeline",
        &[
            (
                "heapprof timeline --top 5 server.heaplog",
                "Draw the curves of the five largest sites.",
            ),
            (
                "heapprof timeline --by type --svg -o types.svg server.heaplog",
                "Draw a picture, by types.",
            ),
            (
                "heapprof timeline a.heaplog b.heaplog",
                "Draw what several processes held together.",
            ),
        ],
        &["top", "report", "explain"],
    ),
    (
        "report",
        &[
            ("heapprof report server.heaplog", "Write server.html."),
            (
                "heapprof report --debuginfod -o all.html a.heaplog b.heaplog",
                "Join processes, and ask servers for names.",
            ),
        ],
        &["timeline", "top", "serve"],
    ),
    (
        "rss",
        &[
            (
                "heapprof rss server.heaplog",
                "Divide the resident memory at the end.",
            ),
            (
                "heapprof rss --at peak 4711",
                "Divide that of a process that runs, at its peak.",
            ),
        ],
        &["top", "ctl", "explain"],
    ),
    (
        "at",
        &[
            (
                "heapprof at 0x7f12a4c01040 server.heaplog",
                "Say which block held the address that a crash names.",
            ),
            (
                "heapprof at 0x7f12a4c01040,0x7f12a4c01080 4711",
                "Ask a process that runs.",
            ),
        ],
        &["ctl", "rss", "run"],
    ),
    (
        "watch",
        &[
            ("heapprof watch 4711", "Watch a process."),
            (
                "heapprof watch -m allocated-bytes server.heaplog",
                "Begin with what is allocated.",
            ),
        ],
        &["top", "serve", "ctl"],
    ),
    (
        "info",
        &[
            (
                "heapprof info server.heaplog",
                "Show settings, losses, and why names are missing.",
            ),
            (
                "heapprof info --json server.heaplog",
                "Write the same for programs.",
            ),
        ],
        &["top", "bundle"],
    ),
    (
        "export",
        &[
            (
                "heapprof export -f pprof -o server.pb.gz server.heaplog",
                "Write a profile for go tool pprof.",
            ),
            (
                "heapprof export -f flamegraph --at peak -o peak.svg server.heaplog",
                "Draw a flame graph of the peak.",
            ),
            (
                "heapprof export -f json server.heaplog",
                "Write all numbers for programs.",
            ),
        ],
        &["symbolize", "report", "push", "top"],
    ),
    (
        "symbolize",
        &[(
            "heapprof symbolize server.0002.heap -o named.heap",
            "Put names into a heap dump.",
        )],
        &["export", "dump"],
    ),
    (
        "dump",
        &[
            (
                "heapprof dump --every 100MiB server.heaplog",
                "Write a dump for each 100 MiB allocated.",
            ),
            (
                "heapprof dump --every 10s -o out/server server.heaplog",
                "Write a dump for each ten seconds.",
            ),
        ],
        &["symbolize", "export", "libheapprof"],
    ),
    (
        "join",
        &[(
            "heapprof join -o all.heaplog a.heaplog b.heaplog",
            "Join the logs of two processes.",
        )],
        &["top", "timeline", "report"],
    ),
    (
        "compress",
        &[
            (
                "heapprof compress server.heaplog",
                "Compress a log in its place; all commands read it as before.",
            ),
            (
                "heapprof compress -d server.heaplog",
                "Make it a plain log again.",
            ),
        ],
        &["run", "bundle"],
    ),
    (
        "bundle",
        &[(
            "heapprof bundle server.heaplog",
            "Write server.tar, which has all names on any machine.",
        )],
        &["info", "export"],
    ),
    (
        "push",
        &[
            (
                "heapprof push --to http://localhost:4040 /var/heap",
                "Send all processes of a folder to Pyroscope.",
            ),
            (
                "heapprof push --format otlp --to http://localhost:4318 4711",
                "Send one to an OpenTelemetry collector.",
            ),
        ],
        &["serve", "export", "libheapprof"],
    ),
    (
        "serve",
        &[
            (
                "heapprof serve /var/heap",
                "Show all processes of a folder to browsers and scrapers.",
            ),
            (
                "heapprof serve --listen 0.0.0.0:7070 --token-file token /var/heap",
                "Serve other machines, with a token.",
            ),
        ],
        &["watch", "push", "report"],
    ),
    (
        "ctl",
        &[
            (
                "heapprof ctl 4711 status",
                "Show what is in force, and where the log is.",
            ),
            (
                "heapprof ctl 4711 mark import",
                "Name this moment, for --at import.",
            ),
            (
                "heapprof ctl 4711 interval 64KiB",
                "Sample more often from now on.",
            ),
            ("heapprof ctl 4711 dump", "Write a heap dump."),
        ],
        &["watch", "attach", "rss", "libheapprof"],
    ),
    (
        "attach",
        &[
            ("heapprof attach 4711", "Record a process until Ctrl-C."),
            (
                "heapprof attach 4711 --for 60s -i 64KiB",
                "Record it for a minute.",
            ),
            (
                "heapprof attach 4711 --leave",
                "Record it until heapprof detach.",
            ),
        ],
        &["detach", "ctl", "run", "libheapprof"],
    ),
    (
        "detach",
        &[(
            "heapprof detach 4711",
            "End the recording that --leave left.",
        )],
        &["attach", "ctl"],
    ),
    (
        "completions",
        &[("heapprof completions bash", "Print the script for bash.")],
        &["", "man"],
    ),
    (
        "man",
        &[
            ("heapprof man top", "Print the page of a command."),
            ("heapprof man libheapprof", "Print the page of the library."),
        ],
        &["", "completions"],
    ),
];

fn page(command: &str) -> Option<&'static Page> {
    EXAMPLES.iter().find(|(name, ..)| *name == command)
}

/// The examples of a command's page.
pub(super) fn of(command: &str) -> &'static [(&'static str, &'static str)] {
    match page(command) {
        Some((_, examples, _)) => examples,
        None => &[],
    }
}

/// The pages that a command's page names.
pub(super) fn see_also(command: &str) -> &'static [&'static str] {
    match page(command) {
        Some((.., pages)) => pages,
        None => &[""],
    }
}
