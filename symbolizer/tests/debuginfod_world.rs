//! A program whose debug information only a server has, and how heapprof asks for it.

use std::process::{Command, Output};
use std::time::Duration;

use heapprof_format::{Module, Segment};
use heapprof_symbolizer::resolve::{
    Debuginfod, DebuginfodSettings, ModuleRef, ModuleSymbols, SearchPath, resolve_module,
};

use crate::common::LogBuilder;
use crate::resolve_fixture::{C_INLINES, Fixture, lines};

pub(crate) const COMPLETE: [&str; 3] = [
    "(inlined) leaf program.c:3",
    "(inlined) middle program.c:6",
    "outer program.c:9",
];

/// A stripped `program` whose debug information only a server has, and one address in it.
pub(crate) struct World {
    pub(crate) fixture: Fixture,
    pub(crate) call: u64,
    pub(crate) id: Vec<u8>,
    /// The debug information.
    pub(crate) debug: Vec<u8>,
    /// The path by which a server is asked for it.
    pub(crate) path: String,
}

pub(crate) fn world() -> World {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g", "-rdynamic"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let id = fixture.build_id("program");
    fixture.run("objcopy", &["--only-keep-debug", "program", "detached"]);
    fixture.run("objcopy", &["--strip-all", "program", "program"]);
    let debug = std::fs::read(fixture.path("detached")).expect("the debug file");
    std::fs::remove_file(fixture.path("detached")).expect("the debug file");
    let path = format!("/buildid/{}/debuginfo", hex(&id));
    World {
        fixture,
        call,
        id,
        debug,
        path,
    }
}

pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl World {
    pub(crate) fn settings(&self, urls: &[&str]) -> DebuginfodSettings {
        DebuginfodSettings {
            urls: urls.iter().map(ToString::to_string).collect(),
            limit: Duration::from_secs(60),
            cache: self.fixture.path("cache"),
            largest: 1 << 30,
        }
    }

    pub(crate) fn client(&self, urls: &[&str]) -> Debuginfod {
        Debuginfod::new(self.settings(urls), |_| {})
    }

    pub(crate) fn ask(&self, client: &Debuginfod) -> ModuleSymbols {
        self.ask_for(client, &self.id)
    }

    pub(crate) fn ask_for(&self, client: &Debuginfod, id: &[u8]) -> ModuleSymbols {
        let search = SearchPath {
            debuginfod: Some(client.clone()),
            ..self.fixture.search()
        };
        let path = self.fixture.path("program");
        let module = ModuleRef {
            path: &path,
            build_id: Some(id),
        };
        resolve_module(&module, &[self.call], &search)
    }

    /// Asks a server that fails in some way: the report has the words, the symbol table has the
    /// name, and the cache has nothing.
    pub(crate) fn fails(&self, settings: DebuginfodSettings, words: &str) {
        let client = Debuginfod::new(settings, |_| {});
        let symbols = self.ask(&client);
        assert_eq!(lines(&symbols, self.call), ["outer ?:0"]);
        let report = symbols.report.to_string();
        assert!(report.contains(words), "'{words}' in {report}");
        assert_eq!(self.cached(), [] as [String; 0]);
        assert_eq!(client.account().failed, 1, "{report}");
        assert_eq!(client.account().fetched, 0);
    }

    /// Names of all files in the cache, each with its length.
    pub(crate) fn cached(&self) -> Vec<String> {
        let mut found = Vec::new();
        let Ok(folders) = std::fs::read_dir(self.fixture.path("cache")) else {
            return found;
        };
        for folder in folders {
            let folder = folder.expect("a folder").path();
            for file in std::fs::read_dir(&folder).into_iter().flatten() {
                let file = file.expect("a file");
                let len = file.metadata().expect("a file").len();
                found.push(format!("{} {len}", file.file_name().display()));
            }
        }
        found.sort();
        found
    }

    pub(crate) fn log(&self) -> String {
        let mut log = LogBuilder::new(1);
        log.module_record(Module {
            number: 0,
            time_ns: 0,
            path: self.fixture.path("program").display().to_string(),
            build_id: self.id.clone(),
            stamp: None,
            bias: 0x10_0000,
            segments: vec![Segment {
                start: 0x10_0000,
                len: 0x10_0000,
                file_offset: 0,
                flags: 5,
            }],
        });
        let stack = log.stack(&[0x10_0000 + self.call]);
        log.alloc(stack, 100);
        let path = self.fixture.write("run.heaplog", log.end());
        path.display().to_string()
    }

    /// The program in a clean environment but for the cache.
    pub(crate) fn heapprof(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_heapprof"))
            .args(args)
            .env_clear()
            .env("DEBUGINFOD_CACHE_PATH", self.fixture.path("cache"))
            .envs(env.iter().copied())
            .output()
            .expect("heapprof can be started")
    }
}
