// Dialogs and short notes. The browser's own <dialog> keeps the focus inside and Escape closes it.

import { h, id, put } from "./dom.js";

export function note(text, kind = "done") {
  const toast = h("p", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(toast);
  setTimeout(() => toast.remove(), kind === "fault" ? 12000 : 5000);
}

// Open a dialog; `build(close)` returns its content. The promise holds what it was closed with. One that is
// needed goes no other way.
export function open(title, build, needed = false) {
  const label = id("dialog");
  const dialog = h("dialog", { "aria-labelledby": label });
  return new Promise((resolve) => {
    const close = (value) => {
      dialog.close();
      resolve(value);
    };
    put(dialog, h("h2", { id: label }, title), build(close));
    dialog.addEventListener("cancel", (event) => (needed ? event.preventDefault() : resolve(undefined)));
    // Chromium closes it on a second Escape whatever is said to the first.
    dialog.addEventListener("keydown", (event) => needed && event.key === "Escape" && event.preventDefault());
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  });
}

// A form in a dialog: `act` is tried on submit, and the dialog stays with the reason where it is refused.
// `content` is shown above the buttons; `ready` is told the submit button, to keep it off until a preview came.
export function form(title, { content, action, danger = false, act, ready, needed = false }) {
  return open(title, (close) => {
    const problem = h("p", { class: "problem", role: "alert" });
    const submit = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const cancel = h("button", { type: "button", onclick: () => close(undefined) }, "Cancel");
    const submitted = async (event) => {
      event.preventDefault();
      problem.textContent = "";
      submit.disabled = true;
      try {
        close((await act()) ?? true);
      } catch (fault) {
        problem.textContent = fault.message;
        submit.disabled = false;
      }
    };
    if (ready) ready(submit);
    return h("form", { onsubmit: submitted }, content, problem, h("div", { class: "buttons" }, !needed && cancel, submit));
  }, needed);
}

export function field(label, input, hint) {
  const name = id("field");
  input.id = name;
  if (hint) input.setAttribute("aria-describedby", `${name}-hint`);
  return h(
    "div",
    { class: "field" },
    h("label", { for: name }, label),
    input,
    hint && h("p", { class: "hint", id: `${name}-hint` }, hint),
  );
}
