// Waits for the first row. Answers when it was shown, in milliseconds since the start of the page's load.
const done = arguments[0];
const look = () => {
    if (window.bench.firstRow === null) {
        requestAnimationFrame(look);
    } else {
        done(window.bench.firstRow);
    }
};
look();
