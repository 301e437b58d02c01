// Widgets know their window, and the window knows its widgets: Rc in both directions.
//
// expect: leak open_window; leak add_widget; churn|nothing paint
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::{cell::RefCell, hint::black_box, rc::Rc};

struct Window {
    widgets: RefCell<Vec<Rc<Widget>>>,
    title: [u8; 2000],
}

struct Widget {
    window: Rc<Window>,
    pixels: [u8; 4000],
}

#[inline(never)]
fn open_window() -> Rc<Window> {
    black_box(Rc::new(Window { widgets: RefCell::default(), title: [1; 2000] }))
}

#[inline(never)]
fn add_widget(window: &Rc<Window>) {
    let widget = Rc::new(Widget { window: window.clone(), pixels: [2; 4000] });
    window.widgets.borrow_mut().push(widget);
}

#[inline(never)]
fn paint(window: &Window) -> usize {
    let mut picture = vec![window.title[0]; 3000];
    for widget in window.widgets.borrow().iter() {
        picture[0] = widget.pixels[1] ^ widget.window.title[2];
    }
    black_box(picture).len()
}

fn main() {
    let pace = Pace::begin();
    let mut painted = 0;
    while pace.going() {
        for _ in 0..3 {
            let window = open_window();
            for _ in 0..4 {
                add_widget(&window);
            }
            painted += paint(&window);
        }
        rest(60);
    }
    println!("{painted}");
}
