function r(n){let{status:s,...e}=structuredClone(n),t=e.metadata;for(let o of["managedFields","uid","creationTimestamp","generation","selfLink","resourceVersion"])delete t[o];return e}export{r as a};
