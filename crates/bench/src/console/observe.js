// Runs in each page before the page's own scripts: notes when the first row of the table of nodes is shown.
window.bench = { firstRow: null };
{
    const observer = new MutationObserver(() => {
        if (document.querySelector(".grid tbody tr[aria-rowindex]") !== null) {
            observer.disconnect();
            // The next frame shows the row.
            requestAnimationFrame(() => {
                window.bench.firstRow = performance.now();
            });
        }
    });
    observer.observe(document, { childList: true, subtree: true });
}
