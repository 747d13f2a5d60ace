"""The style sheet of the reproduction's page: plain, for a phone, for the dark, for print."""

STYLE = """
:root{color-scheme:light dark;--ink:#222;--soft:#5c6066;--line:#d5d8dc;--sheet:#fff;--back:#f4f5f7;
--link:#0b5cad;--badge:#8a4b00;--badge-back:#fff1dc}
@media(prefers-color-scheme:dark){:root{--ink:#e6e7e9;--soft:#a5abb3;--line:#3a3f46;--sheet:#1d2024;
--back:#14161a;--link:#7db7f5;--badge:#ffd9a0;--badge-back:#4a3310}}
*{box-sizing:border-box}
body{margin:0;padding:1rem;background:var(--back);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header,section{max-width:74rem;margin:0 auto 1.25rem;padding:1rem 1.25rem;background:var(--sheet);
border:1px solid var(--line);border-radius:8px}
h1{font-size:1.5rem;margin:.2rem 0 .5rem;line-height:1.25}
h2{font-size:1.15rem;margin:.2rem 0;line-height:1.3}
p{margin:.5rem 0}
.quiet{color:var(--soft);font-size:.875rem}
.lead{font-size:1.05rem}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
nav ul{columns:16rem;padding-left:1.1rem;margin:.5rem 0 0}
.badge{display:inline-block;font-size:.75rem;font-weight:600;vertical-align:middle;color:var(--badge);
background:var(--badge-back);border-radius:999px;padding:.1rem .6rem;margin-left:.4rem;white-space:nowrap}
.figure,.scroll{overflow-x:auto;margin:.75rem 0;max-width:100%}
.figure svg{display:block;width:100%;height:auto;max-width:min(100%,calc(var(--wide)*1.5px))}
.scroll{background:linear-gradient(to right,var(--sheet) 1rem,transparent) 0 0/2rem 100% local,
linear-gradient(to left,var(--sheet) 1rem,transparent) 100% 0/2rem 100% local,
linear-gradient(to right,var(--line),transparent) 0 0/.8rem 100%,
linear-gradient(to left,var(--line),transparent) 100% 0/.8rem 100%;background-repeat:no-repeat}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:.25rem 0}
caption span{display:inline-block;position:sticky;left:0;max-width:calc(100vw - 3.5rem)}
th,td{padding:.2rem .6rem;text-align:right;white-space:nowrap;vertical-align:top}
th{font-weight:600}
thead th{border-bottom:2px solid var(--line);vertical-align:bottom}
tbody th{text-align:left;font-weight:500}
tbody th[scope=row]{color:var(--soft)}
tbody tr:first-child>th[scope=rowgroup]{font-weight:600}
thead th:first-child{text-align:left}
tbody{border-bottom:1px solid var(--line)}
.apart td,.state{color:var(--soft)}
.detail{display:block;font-size:.7rem;line-height:1.3;color:var(--soft);white-space:normal;min-width:5.5rem}
code{font:.85em/1.4 ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.again code{background:var(--back);padding:.15rem .35rem;border-radius:4px}
summary{cursor:pointer;color:var(--soft);font-size:.9rem}
@media(max-width:40rem){body{padding:.4rem}header,section{padding:.7rem .75rem}
table{font-size:.8125rem}th,td{padding:.2rem .4rem}}
@media print{body{background:none}section{break-inside:avoid;border:0}}
"""
