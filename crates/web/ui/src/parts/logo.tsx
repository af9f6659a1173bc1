export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" class="logo-ground" />
      <path d="M7 6.5h18v5H7zM7 13.5h18v5H7zM7 20.5h18v5H7z" class="logo-racks" />
      <circle cx="21.6" cy="9" r="1.3" class="logo-good" />
      <circle cx="21.6" cy="16" r="1.3" class="logo-good" />
      <circle cx="21.6" cy="23" r="1.3" class="logo-busy" />
    </svg>
  );
}
