// The broker's figures as they come: one stream of server-sent events for the whole page.
//
// It is closed while the page can't be seen, so that a forgotten tab costs the broker nothing.

import { addressed, get } from "./api.js";

const STALLED_MS = 6000;
const RETRY_MS = 2000;
// Rights change seldom.
const DENIED_MS = 30000;
const SETTLE_MS = 250;
// As many as the broker lets one stream have.
const MOST_NODES = 50;

class Live extends EventTarget {
  constructor() {
    super();
    this.state = "connecting";
    this.broker = null;
    this.nodes = [];
    this.wanted = [];
    this.source = null;
    this.timer = null;
    this.heard = 0;
    document.addEventListener("visibilitychange", () => this.visible());
  }

  start() {
    this.open();
    setInterval(() => this.look(), 1000);
  }

  // From now on tell of these nodes; the stream is opened anew once the wish has settled.
  watch(names) {
    const wanted = [...new Set(names)].slice(0, MOST_NODES);
    if (wanted.join("\n") === this.wanted.join("\n")) return;
    this.wanted = wanted;
    clearTimeout(this.settle);
    this.settle = setTimeout(() => this.open(), SETTLE_MS);
  }

  on(type, listener, signal) {
    this.addEventListener(type, (event) => listener(event.detail), { signal });
  }

  open() {
    this.close();
    if (document.hidden) return;
    this.nodes = this.wanted;
    const names = this.nodes.map((name) => `node=${encodeURIComponent(name)}`).join("&");
    const source = new EventSource(`/api/v1/live${names ? `?${names}` : ""}`);
    this.source = source;
    this.heard = performance.now();
    source.addEventListener("broker", (event) => this.take("broker", event));
    source.addEventListener("node", (event) => this.take("node", event));
    source.addEventListener("gone", (event) => this.take("gone", event));
    source.addEventListener("silent", () => this.become("lost"));
    source.addEventListener("error", () => {
      if (source !== this.source) return;
      if (source.readyState === EventSource.CLOSED) this.refused();
      else this.become("lost");
    });
  }

  // No stream, because there is no broker or because it has watchers enough: then it is asked now and again.
  async refused() {
    this.retry(RETRY_MS);
    const { source } = this;
    try {
      const detail = await get("/broker");
      this.broker = detail;
      this.heard = performance.now();
      this.become("crowded");
      this.dispatchEvent(new CustomEvent("broker", { detail }));
    } catch (fault) {
      if (fault.status === 403) {
        this.become("denied");
        this.retry(DENIED_MS);
      } else if (fault.status === 401) {
        // It is opened anew once somebody has logged in, or has been meanwhile.
        if (source === this.source) this.close();
      } else {
        this.become("lost");
      }
    }
  }

  take(type, event) {
    const detail = addressed(JSON.parse(event.data));
    this.heard = performance.now();
    if (type === "broker") this.broker = detail;
    this.become("live");
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  become(state) {
    if (state === this.state) return;
    const before = this.state;
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
    if (state === "live" && before === "lost") this.dispatchEvent(new CustomEvent("back", { detail: null }));
  }

  // A stream that says nothing is as good as none.
  look() {
    if (document.hidden || !this.source || performance.now() - this.heard < STALLED_MS) return;
    this.become("lost");
    this.open();
  }

  retry(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), ms);
  }

  visible() {
    if (document.hidden) this.close();
    else this.open();
  }

  close() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    this.source = null;
  }
}

export const live = new Live();
