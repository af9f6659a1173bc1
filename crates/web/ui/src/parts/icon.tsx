/** 16 × 16, drawn with lines. */
const PATHS = {
  alarm: "M8 2.2 14.3 13.3H1.7zM8 6.4v3.2M8 11.3v.1",
  arrow: "M6 3.5 10.5 8 6 12.5",
  check: "m3 8.5 3.3 3.3L13 5",
  close: "m4 4 8 8M12 4l-8 8",
  cluster:
    "M8 5.2V3M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM5.6 9.4l-2.4 2M10.4 9.4l2.4 2M8 1.4v1.2M2 12.4h1.6M12.4 12.4H14",
  columns: "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
  copy: "M5.5 5.5h7.5V13H5.5zM3 10.5V3h7.5",
  dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  down: "m3.5 6 4.5 4.5L12.5 6",
  fabric:
    "M3 3h2.5v2.5H3zM10.5 3H13v2.5h-2.5zM3 10.5h2.5V13H3zM10.5 10.5H13V13h-2.5zM4.2 5.5v5M11.8 5.5v5M5.5 5.5l5 5M10.5 5.5l-5 5",
  fleet: "M2.5 2.5h4.6v4.6H2.5zM8.9 2.5h4.6v4.6H8.9zM2.5 8.9h4.6v4.6H2.5zM8.9 8.9h4.6v4.6H8.9z",
  image: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 6.4a1.6 1.6 0 1 0 0 3.2 1.6 1.6 0 0 0 0-3.2z",
  light:
    "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.4v1.5M8 13.1v1.5M1.4 8h1.5M13.1 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  list: "M2.5 4h11M2.5 8h11M2.5 12h11",
  map: "M2.5 2.5h11v11h-11zM2.5 6.2h11M2.5 9.8h11M6.2 2.5v11M9.8 2.5v11",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  more: "M3.2 8h.1M8 8h.1M12.8 8h.1",
  node: "M2.5 3h11v4.2h-11zM2.5 8.8h11V13h-11zM10.8 5.1h.6M10.8 10.9h.6M4.6 5.1h3M4.6 10.9h3",
  people:
    "M6 7.6a2.4 2.4 0 1 0 0-4.8 2.4 2.4 0 0 0 0 4.8zM1.8 13.2a4.2 4.2 0 0 1 8.4 0M11 3.2a2.2 2.2 0 0 1 0 4.2M11.6 9.4a4 4 0 0 1 2.6 3.8",
  power: "M8 1.8v5.4M4.6 4.1a5.2 5.2 0 1 0 6.8 0",
  pulse: "M1.5 8.5h3l2-5 3 9 2-4h3",
  rack: "M3 1.8h10v12.4H3zM3 5h10M3 8.2h10M3 11.4h10",
  search: "M7 2.6a4.4 4.4 0 1 0 0 8.8 4.4 4.4 0 0 0 0-8.8zM10.2 10.2l3.4 3.4",
  settings: "M2.5 4.5h7M12.5 4.5h1M11 3v3M2.5 11.5h1M6.5 11.5h7M5 10v3",
  terminal: "M1.8 2.8h12.4v10.4H1.8zM4.3 6l2.2 2-2.2 2M8 10.4h3.6",
  up: "m3.5 10 4.5-4.5 4.5 4.5",
  usage: "M2.5 13.5v-4M6.2 13.5V6M9.8 13.5V8M13.5 13.5v-11",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path
        d={PATHS[name]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.3"
        stroke-linejoin="round"
        stroke-linecap="round"
      />
    </svg>
  );
}
