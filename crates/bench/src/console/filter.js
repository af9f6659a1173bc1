// Enters a filter, and waits until the page shows a text. Answers the milliseconds from the entry to the text.
const [filter, text, done] = arguments;
const input = document.querySelector(".filter input");
input.value = filter;
input.dispatchEvent(new Event("input", { bubbles: true }));
// The form takes the text with its next drawing.
requestAnimationFrame(() =>
    setTimeout(() => {
        const begun = performance.now();
        const look = () => {
            if (document.querySelector("main").textContent.includes(text)) {
                done(performance.now() - begun);
            } else {
                requestAnimationFrame(look);
            }
        };
        input.form.requestSubmit();
        requestAnimationFrame(look);
    }, 0),
);
