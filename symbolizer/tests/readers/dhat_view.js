// Runs valgrind's DHAT viewer (dh_view.js) on a file, without a browser, and prints the text it shows.
//
//   node dhat_view.js <dh_view.js> <file>
//
// Elements here are what the viewer needs of them: children, text, a parent.
"use strict";
const fs = require("fs");
const vm = require("vm");

class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], parentNode: null, text: "" });
    this.classList = { add() {}, remove() {}, toggle() {}, contains: () => false };
  }
  appendChild(child) {
    child.parentNode = this;
    this.children.push(child);
    return child;
  }
  replaceChild(fresh, old) {
    fresh.parentNode = this;
    this.children[this.children.indexOf(old)] = fresh;
  }
  cloneNode() {
    return new Element(this.tag);
  }
  set textContent(text) {
    this.text = text;
    this.children = [];
  }
  get textContent() {
    return this.text + this.children.map((child) => child.textContent).join("");
  }
  get childNodes() {
    return this.children;
  }
  // Of a select: the option that says it is selected.
  get selectedIndex() {
    return this.children.findIndex((option) => option.selected);
  }
}

const [, , viewer, file] = process.argv;
const document = {
  body: new Element("body"),
  title: "",
  location: { search: "" },
  createElement: (tag) => new Element(tag),
  createTextNode: (text) => Object.assign(new Element("#text"), { text }),
};
const world = { document, performance, URLSearchParams, console };
vm.createContext(world);
vm.runInContext(fs.readFileSync(viewer, "utf8"), world);
// As its page does, and then what its file dialogue does once a file was read.
world.data = fs.readFileSync(file, "utf8");
vm.runInContext(
  "onLoad(); gFilename = 'file'; gData = JSON.parse(data); buildTree(); displayTree(0, 0, 0);",
  world,
);
process.stdout.write(document.body.textContent);
