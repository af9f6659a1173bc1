// Begins to look for a cell with a text; `changed.js` waits for it.
const [text] = arguments;
window.bench.changed = new Promise((resolve) => {
    const look = () => {
        const cells = [...document.querySelectorAll(".grid tbody td")];
        if (cells.some((cell) => cell.textContent === text)) {
            observer.disconnect();
            // The next frame shows the cell.
            requestAnimationFrame(() => resolve(performance.timeOrigin + performance.now()));
        }
    };
    const observer = new MutationObserver(look);
    observer.observe(document, { childList: true, characterData: true, subtree: true });
});
