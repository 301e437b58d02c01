//! Shells: what their scripts get besides clap's, so that they offer processes, moments and
//! programs.
//!
//! No shell expands what `heapprof completions` prints: a marker's name may hold anything.

use clap::{Arg, Command};
use clap_complete::Shell;

/// The parts of the definitions that the scripts rest on.
pub(super) struct Facts {
    /// Commands that take a process under heapprof.
    recorded: Vec<String>,
    /// Commands that take any process.
    any: Vec<String>,
    /// Options that take a moment.
    moments: Vec<String>,
    /// Commands with such options.
    with_moments: Vec<String>,
}

impl Facts {
    pub(super) fn of(program: &Command) -> Facts {
        let mut facts = Facts {
            recorded: Vec::new(),
            any: Vec::new(),
            moments: Vec::new(),
            with_moments: Vec::new(),
        };
        for command in program.get_subcommands() {
            let name = command.get_name().to_owned();
            let mut positionals = command.get_positionals();
            if positionals.any(|value| value_of(value).split('|').any(|word| word == "PID")) {
                match name.as_str() {
                    "attach" => facts.any.push(name.clone()),
                    _ => facts.recorded.push(name.clone()),
                }
            }
            let options = command.get_arguments();
            let of_moments = options.filter(|option| value_of(option) == "MOMENT");
            let longs: Vec<&str> = of_moments.filter_map(Arg::get_long).collect();
            if !longs.is_empty() {
                facts.with_moments.push(name);
            }
            facts.moments.extend(longs.into_iter().map(str::to_owned));
        }
        facts.moments.sort();
        facts.moments.dedup();
        facts
    }
}

fn value_of(arg: &Arg) -> &str {
    let names = arg.get_value_names().unwrap_or_default();
    names.first().map_or("", |name| name.as_str())
}

/// Returns the script with offers. Other shells keep clap's.
pub(super) fn with_offers(shell: Shell, script: String, facts: &Facts) -> String {
    match shell {
        Shell::Bash => wrapped(&script, BASH, "complete", facts),
        Shell::Zsh => wrapped(&script, ZSH, "if [ \"$funcstack[1]\"", facts),
        Shell::Fish => script + &filled(FISH, facts),
        _ => script,
    }
}

/// Renames clap's function and puts ours before the line that registers it.
fn wrapped(script: &str, ours: &str, registration: &str, facts: &Facts) -> String {
    let renamed = script.replacen("_heapprof() {", "_heapprof_of_clap() {", 1);
    let ours = filled(ours, facts);
    // bash's registration stands in a condition.
    let end = renamed.rfind("\nif ").map_or(renamed.len(), |at| at + 1);
    debug_assert!(renamed[end..].contains(registration));
    let (before, behind) = renamed.split_at(end);
    format!("{before}{ours}\n{behind}")
}

fn filled(text: &str, facts: &Facts) -> String {
    let options = |between: &str, before: &str| {
        let options = facts.moments.iter().map(|name| format!("{before}{name}"));
        options.collect::<Vec<_>>().join(between)
    };
    text.replace("@recorded|@", &facts.recorded.join("|"))
        .replace("@any|@", &facts.any.join("|"))
        .replace("@moments|@", &options("|", "--"))
        .replace("@recorded @", &facts.recorded.join(" "))
        .replace("@any @", &facts.any.join(" "))
        .replace("@with moments @", &facts.with_moments.join(" "))
        .replace("@moments -l@", &options(" ", "-l "))
}

const BASH: &str = r#"_heapprof_offer() {
    local word
    while IFS=$'\t' read -r word _; do
        [[ $word == "$cur"* ]] && COMPREPLY+=("$(printf %q "$word")")
    done < <(heapprof completions "$@" 2>/dev/null)
}

_heapprof() {
    local cur=$2 prev=$3 command= process= word i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $command == run && $word == -- ]]; then
            # The rest is the program's own command line.
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            elif ((COMP_CWORD == i + 1)); then
                COMPREPLY=($(compgen -c -- "$cur"))
            fi
            return 0
        fi
        [[ $word != +([0-9]) ]] || process=$word
        [[ -n $command || $word == -* ]] || command=$word
    done
    COMPREPLY=()
    case $prev in
        @moments|@)
            _heapprof_offer --moments-of "${COMP_WORDS[@]:2}"
            return 0
            ;;
    esac
    _heapprof_of_clap "$@"
    [[ $cur != -* ]] || return 0
    # Options are offered behind a dash, and files if nothing else is.
    local offered=("${COMPREPLY[@]}")
    COMPREPLY=()
    for word in "${offered[@]}"; do
        [[ $word == [-\<\[]* || $word == *... ]] || COMPREPLY+=("$word")
    done
    case $process$command in
        @any|@) _heapprof_offer --pids all ;;
        @recorded|@) _heapprof_offer --pids recorded ;;
    esac
    return 0
}
"#;

const ZSH: &str = r#"_heapprof() {
    local command process word
    local -a offered
    integer i
    for ((i = 2; i < CURRENT; i++)); do
        word=$words[i]
        if [[ $command == run && $word == -- ]]; then
            # The rest is the program's own command line.
            shift $i words
            ((CURRENT -= i))
            _normal
            return
        fi
        [[ $word != <-> ]] || process=$word
        [[ -n $command || $word == -* ]] || command=$word
    done
    case $words[CURRENT-1] in
        (@moments|@)
            offered=("${(@f)$(heapprof completions --moments-of "${(@)words[3,-1]}" 2>/dev/null)}")
            offered=("${(@)offered%%$'\t'*}")
            compadd -a offered
            return
            ;;
    esac
    case $process$command in
        (@any|@) offered=("${(@f)$(heapprof completions --pids all 2>/dev/null)}") ;;
        (@recorded|@) offered=("${(@f)$(heapprof completions --pids recorded 2>/dev/null)}") ;;
    esac
    offered=("${(@)offered:#}")
    if (($#offered)) && [[ $words[CURRENT] != -* ]]; then
        offered=("${(@)offered/$'\t'/:}")
        _describe process offered
    fi
    _heapprof_of_clap "$@"
}
"#;

const FISH: &str = r#"
complete -c heapprof -n "__fish_seen_subcommand_from @any @" -f -a "(heapprof completions --pids all 2>/dev/null)"
complete -c heapprof -n "__fish_seen_subcommand_from @recorded @" -a "(heapprof completions --pids recorded 2>/dev/null)"
complete -c heapprof -n "__fish_seen_subcommand_from @with moments @" @moments -l@ -x -a "(heapprof completions --moments-of (commandline -opc)[3..-1] 2>/dev/null)"
complete -c heapprof -n "__fish_seen_subcommand_from run" -x -a "(__fish_complete_subcommand)"
"#;
