// Subtitles (SubRip, WebVTT) pasted as a text: their numbers, times and headers are not translated.

const TIMES = /^\s*\d[\d:.,]*\s*-->\s*\d/;

// For each line, whether it belongs to the format of subtitles; in other texts, none does.
export function subtitleMarks(lines) {
  const times = lines.map((line) => TIMES.test(line));
  if (!times.includes(true)) return times;
  return lines.map((line, index) => {
    const isFirst = index === 0 || !lines[index - 1].trim();
    return times[index] || (isFirst && times[index + 1] === true) || (index === 0 && /^\ufeff?WEBVTT\b/.test(line));
  });
}
