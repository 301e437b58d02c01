//! Tests of a state: keys and snapshots.

use heapprof_core::Estimate;

use super::*;
use crate::model::metric::Metric;
use crate::watch::comparison::Moment;
use crate::watch::table::Direction;
use crate::watch::test_snapshots::{MAIN, PARSE, READ, TestSnapshots};

fn given() -> TestSnapshots {
    TestSnapshots::default()
        .stack(&[PARSE, READ, MAIN], 100, 10)
        .stack(&[READ, MAIN], 50, 5)
        .stack(&[MAIN], 1, 3)
}

fn state() -> State {
    let mut state = State::new("a.heaplog".into(), Measure::default(), String::new());
    state.take(Box::new(given().snapshot()));
    state
}

fn press(state: &mut State, keys: &[Key]) -> Option<Action> {
    let mut action = None;
    for &key in keys {
        action = state.press(key);
    }
    action
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

fn subjects(state: &State) -> Vec<Subject> {
    state.table.lines.iter().map(|line| line.subject).collect()
}

#[test]
fn a_selection_stays_with_its_site_once_it_was_moved() {
    let mut state = state();
    let site = Subject::Site;
    assert_eq!(subjects(&state), [site(PARSE), site(READ), site(MAIN)]);
    let grown = || {
        Box::new(
            given()
                .stack(&[READ, MAIN], 10_000, 1)
                .stack(&[MAIN], 5000, 1)
                .snapshot(),
        )
    };
    state.take(grown());
    assert_eq!(subjects(&state), [site(READ), site(MAIN), site(PARSE)]);
    assert_eq!(state.selected, 0, "not moved: it is the first line");
    press(&mut state, &[Key::Down]);
    state.take(Box::new(given().snapshot()));
    assert_eq!(state.selected, 2, "main is the last line now");
    press(&mut state, &[Key::Home]);
    state.take(grown());
    assert_eq!(state.selected, 0);
    press(&mut state, &[Key::End, Key::Down, Key::PageDown]);
    assert_eq!(state.selected, 2);
    press(&mut state, &[Key::Up, Key::PageUp, Key::Up]);
    assert_eq!(state.selected, 0);
}

#[test]
fn lines_scroll_with_the_selection() {
    let mut state = state();
    state.has_room_for(2);
    press(&mut state, &[Key::Down]);
    assert_eq!(state.first, 0);
    press(&mut state, &[Key::Down]);
    assert_eq!((state.first, state.selected), (1, 2));
    press(&mut state, &[Key::Up]);
    assert_eq!((state.first, state.selected), (1, 1));
    press(&mut state, &[Key::Home]);
    assert_eq!(state.first, 0);
    press(&mut state, &[Key::End]);
    state.has_room_for(1);
    assert_eq!((state.first, state.selected), (2, 2));
    state.has_room_for(10);
    assert_eq!(state.first, 0);
}

#[test]
fn a_way_is_gone_into_callers_and_back() {
    let mut state = state();
    let site = Subject::Site;
    press(&mut state, &[Key::Enter]);
    assert_eq!(subjects(&state), [site(READ)]);
    press(&mut state, &[Key::Enter, Key::Right]);
    assert_eq!(subjects(&state), [Subject::Root]);
    press(&mut state, &[Key::Enter]);
    let focus = state.choice.focus.clone().unwrap();
    assert_eq!(focus.path, [PARSE, READ, MAIN], "a root has no callers");
    assert!(state.message.is_some());
    press(&mut state, &[Key::Left]);
    assert_eq!(subjects(&state), [site(MAIN)]);
    press(&mut state, &[Key::Escape, Key::Backspace, Key::Left]);
    assert_eq!(subjects(&state), [site(PARSE), site(READ), site(MAIN)]);
    // Into what main calls: from the selected line at once.
    press(&mut state, &[Key::End, Key::Tab]);
    let focus = state.choice.focus.clone().unwrap();
    assert_eq!(
        (focus.direction, &focus.path[..]),
        (Direction::Callees, &[MAIN][..])
    );
    assert_eq!(subjects(&state), [site(READ), Subject::Own]);
    press(&mut state, &[Key::Enter, Key::Tab]);
    let focus = state.choice.focus.clone().unwrap();
    assert_eq!(
        (focus.direction, &focus.path[..]),
        (Direction::Callers, &[MAIN][..])
    );
    press(&mut state, &[Key::Left]);
    assert_eq!(state.choice.focus, None);
    assert_eq!(state.selected, 2, "where it was left");
}

#[test]
fn a_filter_is_at_work_while_it_is_typed() {
    let mut state = state();
    press(&mut state, &typed("/mai"));
    assert_eq!(subjects(&state), [Subject::Site(MAIN)]);
    press(
        &mut state,
        &[
            Key::Backspace,
            Key::Backspace,
            Key::Backspace,
            Key::Char('q'),
        ],
    );
    assert_eq!(
        subjects(&state),
        [Subject::Site(READ)],
        "a q is a letter here"
    );
    press(&mut state, &[Key::Enter]);
    assert_eq!(
        (state.choice.filter.as_str(), &state.mode),
        ("q", &Mode::Table)
    );
    press(&mut state, &typed("/xy"));
    press(&mut state, &[Key::Escape]);
    assert_eq!(state.choice.filter, "q", "as it was before");
    press(&mut state, &[Key::Escape]);
    assert_eq!(subjects(&state).len(), 3);
    press(&mut state, &typed("/par"));
    press(&mut state, &[Key::Enter, Key::Enter]);
    assert_eq!(
        subjects(&state),
        [Subject::Site(READ)],
        "callers are not filtered"
    );
    press(&mut state, &[Key::Left]);
    assert_eq!(state.choice.filter, "par");
}

#[test]
fn metrics_and_orders_are_chosen() {
    let mut state = state();
    press(
        &mut state,
        &[Key::Char('s'), Key::Down, Key::Down, Key::Enter],
    );
    assert_eq!(state.choice.measure, Metric::AllocatedBytes.into());
    press(&mut state, &[Key::Char('>')]);
    assert_eq!(state.choice.measure, Metric::AllocatedObjects.into());
    press(&mut state, &typed("<<<<"));
    assert_eq!(state.choice.measure, Measure::Lifetime);
    press(&mut state, &[Key::Char('s'), Key::Down, Key::Escape]);
    assert_eq!(state.choice.measure, Measure::Lifetime);
    press(&mut state, &typed(">o"));
    assert_eq!(state.choice.by, By::All);
    assert_eq!(subjects(&state).first(), Some(&Subject::Site(MAIN)));
    press(&mut state, &typed("r"));
    assert_eq!(subjects(&state).last(), Some(&Subject::Site(MAIN)));
}

#[test]
fn a_program_that_runs_is_asked_one_thing_at_a_time() {
    let mut state = state();
    assert_eq!(
        press(&mut state, &[Key::Char('m'), Key::Enter]),
        None,
        "no name"
    );
    let mut keys = typed("mafter  the import");
    keys.push(Key::Enter);
    let action = press(&mut state, &keys);
    assert_eq!(action, Some(Action::Ask("mark after  the import".into())));
    assert_eq!(press(&mut state, &typed("d")), None);
    assert!(state.message.clone().unwrap().1, "it has not answered yet");
    state.answered(Ok("marked".into()));
    assert_eq!(state.message, Some(("marked".into(), false)));
    assert_eq!(
        press(&mut state, &typed("d")),
        Some(Action::Ask("dump".into()))
    );
    state.answered(Err("process 77: no".into()));
    assert!(state.message.clone().unwrap().1);
    press(&mut state, &[Key::Down]);
    assert_eq!(state.message, None, "it goes with the next key");
    state.asked = None;
    assert_eq!(press(&mut state, &typed("m ")), None);
    assert_eq!(press(&mut state, &[Key::Enter]), None);
    assert!(state.message.clone().unwrap().0.contains("needs a name"));
    state.take(Box::new(given().ended()));
    assert_eq!(press(&mut state, &typed("d")), None);
    assert_eq!(press(&mut state, &typed("m")), None);
    assert_eq!(state.mode, Mode::Table);
}

#[test]
fn a_comparison_begins_and_ends_with_the_same_key() {
    let mut state = state();
    assert_eq!(press(&mut state, &typed("c")), Some(Action::Compare(true)));
    assert_eq!(state.choice.by, By::Growth, "the largest change first");
    let mut snapshot = given().snapshot();
    let mut then = snapshot.profile.clone();
    then.rows.truncate(1);
    let new: Vec<_> = (snapshot.profile.rows.iter().skip(1))
        .map(|row| row.totals.in_use)
        .collect();
    let new = [vec![Estimate::default()], new].concat();
    snapshot.comparison = Some(Moment::of(&then).compared(&snapshot.profile, &new));
    state.take(Box::new(snapshot));
    let changes: Vec<f64> = (state.table.lines.iter())
        .map(|line| line.growth.value)
        .collect();
    assert_eq!(changes, [250.0, 3.0, 0.0]);
    assert_eq!(press(&mut state, &typed("c")), Some(Action::Compare(false)));
    assert_eq!(state.choice.by, By::Own);
}

/// The key to compare and the one to pause, at once: the comparison is shown, and stays.
#[test]
fn a_comparison_is_shown_although_the_view_is_paused() {
    let mut state = state();
    assert_eq!(press(&mut state, &typed("c ")), None);
    assert!(state.is_paused());
    state.take(Box::new(given().snapshot()));
    assert!(!state.is_compared(), "it was on its way");
    let compared = |profile: &crate::model::profile::Profile| {
        let mut snapshot = given().snapshot();
        snapshot.comparison = Some(Moment::of(profile).compared(&snapshot.profile, &[]));
        Box::new(snapshot)
    };
    let then = given().snapshot().profile;
    state.take(compared(&then));
    assert!(state.is_compared() && state.is_paused());
    // Later ones wait.
    let more = given().stack(&[READ, MAIN], 10_000, 1).snapshot();
    state.take(Box::new(more));
    assert!(state.is_compared());
    assert_eq!(state.table.whole.value, 1253.0);
    assert_eq!(press(&mut state, &typed("c")), Some(Action::Compare(false)));
    state.take(Box::new(given().snapshot()));
    assert!(!state.is_compared() && state.is_paused());
}

#[test]
fn a_paused_view_stays_until_it_goes_on() {
    let mut state = state();
    press(&mut state, &typed(" "));
    let more = given().stack(&[READ, MAIN], 10_000, 1);
    state.take(Box::new(given().snapshot()));
    state.take(Box::new(more.snapshot()));
    assert_eq!(state.table.whole.value, 1253.0);
    press(&mut state, &typed("r"));
    assert!(state.is_paused());
    press(&mut state, &typed(" "));
    assert_eq!(state.table.whole.value, 11_253.0);
    assert!(!state.is_paused());
}

#[test]
fn a_view_that_was_paused_at_once_has_something_to_show() {
    let mut state = State::new("a.heaplog".into(), Measure::default(), String::new());
    press(&mut state, &typed(" "));
    state.take(Box::new(given().snapshot()));
    assert_eq!((state.is_paused(), state.table.whole.value), (true, 1253.0));
}

#[test]
fn a_log_that_begins_anew_has_other_sites() {
    let mut state = state();
    press(&mut state, &[Key::Down, Key::Enter]);
    let mut snapshot = given().snapshot();
    snapshot.generation += 1;
    state.take(Box::new(snapshot));
    assert_eq!((state.choice.focus, state.selected), (None, 0));
}

#[test]
fn there_is_always_a_way_out() {
    for keys in ["", "/", "m", "s", "?"] {
        let mut state = state();
        press(&mut state, &typed(keys));
        assert_eq!(state.press(Key::Interrupt), Some(Action::Quit));
    }
    let mut state = State::new("a.heaplog".into(), Measure::default(), String::new());
    press(
        &mut state,
        &[
            Key::Enter,
            Key::Down,
            Key::Tab,
            Key::Char('r'),
            Key::Char('z'),
        ],
    );
    assert_eq!(state.press(Key::Char('q')), Some(Action::Quit));
}
