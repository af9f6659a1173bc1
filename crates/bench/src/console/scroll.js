// Scrolls the table of nodes with each frame, for some seconds. Answers the times between two frames, in milliseconds.
const [seconds, done] = arguments;
const PIXELS_A_FRAME = 300;
const grid = document.querySelector(".grid");
const range = Math.max(1, grid.scrollHeight - grid.clientHeight);
const frames = [];
let [begun, last] = [0, 0];
const step = (now) => {
    if (last === 0) {
        begun = now;
    } else {
        frames.push(now - last);
    }
    last = now;
    if (now - begun > seconds * 1_000) {
        done(frames);
        return;
    }
    grid.scrollTop = (grid.scrollTop + PIXELS_A_FRAME) % range;
    requestAnimationFrame(step);
};
requestAnimationFrame(step);
