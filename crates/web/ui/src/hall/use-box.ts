import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface Box {
  width: number;
  height: number;
}

/** A place in the document, and its inner size. */
export function useBox<T extends HTMLElement>(): [RefObject<T | null>, Box] {
  const ref = useRef<T>(null);
  const [box, setBox] = useState<Box>({ width: 0, height: 0 });
  useEffect(() => {
    const place = ref.current;
    if (place === null) {
      return undefined;
    }
    const read = () => {
      const [width, height] = [place.clientWidth, place.clientHeight];
      setBox((before) => (before.width === width && before.height === height ? before : { width, height }));
    };
    read();
    const observer = new ResizeObserver(read);
    observer.observe(place);
    return () => observer.disconnect();
  }, []);
  return [ref, box];
}

/** Prepares a canvas of this size for drawing in CSS pixels. */
export function prepare(canvas: HTMLCanvasElement, { width, height }: Box): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}
