// A browser in a POSIX locale names a language that its own number format refuses, and the plot library asks for it.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US" });
}
