// Waits for the cell of `await_change.js`. Answers when it was shown, in milliseconds since 1970.
const done = arguments[0];
window.bench.changed.then(done);
