// Waits until the page shows a text. Answers the milliseconds since the start of the page's load.
const [text, done] = arguments;
const look = () => {
    if (document.querySelector("main")?.textContent.includes(text)) {
        done(performance.now());
    } else {
        requestAnimationFrame(look);
    }
};
look();
