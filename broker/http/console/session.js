// Who is logged in here, and what they may do. The cookie is the browser's: no script can see it.

import { ask, get, whenUnknown } from "./api.js";
import { form, field, note } from "./dialog.js";
import { h, put } from "./dom.js";

export const BROKER = "$broker";
const KEPT_MS = 60000;

let who = null;
// How many cells the broker has; a single one has none.
export const cells = () => (who && who.cells) || 0;
// What stands in the way of a broker of several cells: a column that tells them apart.
export const cellColumn = (column) => (cells() ? [column] : []);
let asking = null;
const kept = new Map();

// Settle who is there before anything is shown; where nobody needs to say, nobody is asked.
export async function begin() {
  try {
    who = await get("/session");
  } catch (fault) {
    if (fault.status === 401) await login("");
  }
  shown();
}

// A login in a dialog; one at a time, whoever finds out first that it is needed.
function login(why) {
  asking ??= asked(why).finally(() => {
    asking = null;
  });
  return asking;
}

async function asked(why) {
  const user = h("input", { type: "text", required: true, autofocus: true, autocomplete: "username", autocapitalize: "none", spellcheck: "false", maxlength: "255" });
  const password = h("input", { type: "password", required: true, autocomplete: "current-password", maxlength: "1024" });
  const before = who && who.user;
  await form("Log in", {
    content: [why && h("p", { role: "status" }, why), field("User", user), field("Password", password)],
    action: "Log in",
    needed: true,
    act: async () => {
      try {
        who = (await ask("POST", "/session", { body: { user: user.value, password: password.value } })).data;
      } finally {
        password.value = "";
        password.focus();
      }
      return true;
    },
  });
  kept.clear();
  if (before && before !== who.user) location.reload();
  shown();
}

async function logout() {
  try {
    await ask("DELETE", "/session");
    location.reload();
  } catch (fault) {
    note(fault.message, "fault");
  }
}

async function change() {
  await login("");
  location.reload();
}

function shown() {
  const place = document.getElementById("who");
  if (!who || (!who.by && !who.logins)) {
    put(place);
    return;
  }
  const name = h("span", { class: "user", title: who.groups.length ? `${who.user}, of ${who.groups.join(", ")}` : who.user }, h("span", { class: "hidden" }, "Logged in as "), who.user);
  if (who.by === "session") put(place, name, h("button", { type: "button", class: "quiet", onclick: logout }, "Log out"));
  else if (who.by) put(place, name);
  else put(place, h("button", { type: "button", class: "quiet", onclick: change }, "Log in"));
}

// The session has ended while the page was open: `again` shows it anew once somebody is there.
export function watch(again) {
  whenUnknown(async () => {
    if (!asking) {
      await login("Your session has ended. Log in to go on.");
      again();
    }
  });
}

// --- rights

// Why something may not be done at an address; empty where it may. Only a courtesy: it is the broker that decides.
async function refusal(action, where) {
  const address = where.replace(/^\$cell\/\d+\//, "");
  if (!who || !who.rules) return "";
  const known = kept.get(address);
  if (known && performance.now() - known.at < KEPT_MS) return (await known.may)[action];
  const may = get("/session", { address }).then((told) => told.may, () => ({}));
  kept.set(address, { may, at: performance.now() });
  return (await may)[action];
}

// A button that says why it does nothing, where it may not be used. It keeps the focus, so that all can read why.
export function guarded(button, action, address = BROKER) {
  refusal(action, address).then((why) => {
    if (!why) return;
    button.setAttribute("aria-disabled", "true");
    button.setAttribute("aria-description", why);
    button.title = why;
    button.addEventListener("click", (event) => {
      event.preventDefault();
      event.stopImmediatePropagation();
      note(why, "fault");
    }, { capture: true });
  });
  return button;
}
