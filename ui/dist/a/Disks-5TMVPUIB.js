import{a,b,c}from"/dashboard/a/chunk-SNKNAQGL.js";import"/dashboard/a/chunk-M5I7WRJI.js";export{c as GrowVolume,a as MachineDisks,b as sizeOf};
