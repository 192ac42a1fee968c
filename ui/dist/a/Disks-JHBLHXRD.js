import{a,b,c}from"/dashboard/a/chunk-WWJ5FUAK.js";import"/dashboard/a/chunk-7JPGRZKQ.js";export{c as GrowVolume,a as MachineDisks,b as sizeOf};
