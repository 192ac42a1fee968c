import{S as r}from"/dashboard/a/chunk-MWJZRZ3H.js";import{B as t,Q as o,c as s}from"/dashboard/a/chunk-7JPGRZKQ.js";var m=document.getElementById("app");m&&(s(o(r,{}),m),t());
